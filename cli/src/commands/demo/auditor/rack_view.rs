//! Reading a rack: its fabric managers and its BMCs, in whichever of the three ways it binds.
//!
//! What binds is a group of members, some of them hosts and some GPUs: a zone with its endpoints, a connection
//! with its ends, a system with its blocks. Who a member is does not change, so it is read once.

use crate::wire_up::{EndpointInfo, ServedRack};
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A GPU's serial number, a host's UUID, and the place where they are bound: a manager and a group of it.
pub type Seen = (String, String, Place);

/// A manager (its place in the list) and the address of a group there.
pub type Place = (usize, String);

const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

/// Who a member of a group is.
enum Who {
    Gpu(String),
    Host(String),
}

/// A fabric manager.
struct Manager {
    url: String,
    /// The collection of what binds.
    groups: String,
    /// Where a group names its members, under `Links`.
    lists: &'static [&'static str],
    members: BTreeMap<String, Who>,
}

/// How a client gets in, and where.
pub struct Door<'a> {
    pub ca_pem: &'a str,
    pub username: &'a str,
    pub password: &'a str,
    pub endpoints: &'a [EndpointInfo],
}

impl<'a> From<&'a ServedRack> for Door<'a> {
    fn from(rack: &'a ServedRack) -> Self {
        Self {
            ca_pem: rack.ca_pem(),
            username: rack.username(),
            password: rack.password(),
            endpoints: rack.endpoints(),
        }
    }
}

/// A rack, and how to read it.
pub struct RackView {
    http: reqwest::Client,
    username: String,
    password: String,
    managers: Vec<Manager>,
    /// Serial numbers of all GPUs.
    pub gpus: BTreeSet<String>,
    /// UUIDs of all hosts.
    pub hosts: BTreeSet<String>,
}

impl RackView {
    /// Reads who is who.
    pub async fn read(rack: Door<'_>) -> Result<Self, String> {
        let authority = reqwest::Certificate::from_pem(rack.ca_pem.as_bytes()).map_err(|e| e.to_string())?;
        let http = reqwest::Client::builder()
            .tls_certs_only([authority])
            .timeout(PATIENCE)
            .no_proxy()
            .build();
        let mut view = Self {
            http: http.map_err(|error| error.to_string())?,
            username: rack.username.to_owned(),
            password: rack.password.to_owned(),
            managers: Vec::new(),
            gpus: BTreeSet::new(),
            hosts: BTreeSet::new(),
        };
        for endpoint in rack.endpoints {
            match endpoint.kind.as_str() {
                "bmc" => view.read_host(&endpoint.url).await?,
                _ => view.read_manager(&endpoint.url).await?,
            }
        }
        Ok(view)
    }

    /// Everything that is bound now.
    pub async fn bindings(&self) -> Result<Vec<Seen>, String> {
        let mut seen = Vec::new();
        for (index, manager) in self.managers.iter().enumerate() {
            let groups = self.members_of(&manager.url, &manager.groups).await?;
            let mut reads = futures_util::stream::iter(groups)
                .map(|group| async move { self.bindings_at(&(index, group)).await })
                .buffered(AT_ONCE);
            while let Some(found) = reads.try_next().await? {
                seen.extend(found);
            }
        }
        Ok(seen)
    }

    /// What one group binds now. A group that is gone binds nothing.
    pub async fn bindings_at(&self, place: &Place) -> Result<Vec<Seen>, String> {
        let (index, group) = place;
        let Some(manager) = self.managers.get(*index) else {
            return Ok(Vec::new());
        };
        let Some(document) = self.get_if_there(&manager.url, group).await? else {
            return Ok(Vec::new());
        };
        let (mut hosts, mut gpus) = (Vec::new(), Vec::new());
        for list in manager.lists {
            for link in links(&document["Links"][list]) {
                match manager.members.get(&link) {
                    Some(Who::Gpu(serial)) => gpus.push(serial.clone()),
                    Some(Who::Host(uuid)) => hosts.push(uuid.clone()),
                    None => {
                        return Err(format!(
                            "{group} at {} has a member that nobody knows: {link}",
                            manager.url
                        ));
                    }
                }
            }
        }
        let pairs = hosts
            .iter()
            .flat_map(|host| gpus.iter().map(move |gpu| (gpu, host)));
        Ok(pairs
            .map(|(gpu, host)| (gpu.clone(), host.clone(), place.clone()))
            .collect())
    }

    /// A BMC: its hosts, and the GPUs on their own baseboards.
    async fn read_host(&mut self, url: &str) -> Result<(), String> {
        for system in self.members_of(url, "/redfish/v1/Systems").await? {
            let document = self.get(url, &system).await?;
            self.hosts.insert(text(&document["UUID"], &system)?);
            if let Some(processors) = link(&document["Processors"]) {
                self.read_gpus(url, &processors).await?;
            }
        }
        Ok(())
    }

    /// A fabric manager: its GPUs, and who the members of its groups are.
    async fn read_manager(&mut self, url: &str) -> Result<(), String> {
        let root = self.get(url, "/redfish/v1").await?;
        let mut members = BTreeMap::new();
        let (groups, lists): (String, &[&str]) = match link(&root["CompositionService"]) {
            Some(service) => {
                let service = self.get(url, &service).await?;
                let blocks =
                    link(&service["ResourceBlocks"]).ok_or("a composition service without blocks")?;
                for block in self.members_of(url, &blocks).await? {
                    let who = self.who_is_block(url, &block).await?;
                    members.insert(block, who);
                }
                ("/redfish/v1/Systems".to_owned(), &["ResourceBlocks"])
            }
            None => {
                let fabrics = link(&root["Fabrics"]).ok_or_else(|| format!("{url} shows no fabric"))?;
                let fabrics = self.members_of(url, &fabrics).await?;
                let [fabric] = &fabrics[..] else {
                    return Err(format!("{url} shows {} fabrics", fabrics.len()));
                };
                let fabric = self.get(url, fabric).await?;
                let endpoints = link(&fabric["Endpoints"]).ok_or("a fabric without endpoints")?;
                for endpoint in self.members_of(url, &endpoints).await? {
                    let who = self.who_is_endpoint(url, &endpoint).await?;
                    members.insert(endpoint, who);
                }
                match (link(&fabric["Zones"]), link(&fabric["Connections"])) {
                    (Some(zones), _) => (zones, &["Endpoints"]),
                    (None, Some(connections)) => (connections, &["InitiatorEndpoints", "TargetEndpoints"]),
                    (None, None) => return Err(format!("the fabric at {url} can't bind")),
                }
            }
        };
        let gpus = members.values().filter_map(|who| match who {
            Who::Gpu(serial) => Some(serial.clone()),
            Who::Host(_) => None,
        });
        self.gpus.extend(gpus);
        self.managers.push(Manager {
            url: url.to_owned(),
            groups,
            lists,
            members,
        });
        Ok(())
    }

    async fn read_gpus(&mut self, url: &str, processors: &str) -> Result<(), String> {
        for processor in self.members_of(url, processors).await? {
            let document = self.get(url, &processor).await?;
            if document["ProcessorType"] == "GPU" {
                self.gpus.insert(text(&document["SerialNumber"], &processor)?);
            }
        }
        Ok(())
    }

    /// An endpoint of a fabric: a host is an initiator with its UUID, a GPU is a target with a device.
    async fn who_is_endpoint(&self, url: &str, uri: &str) -> Result<Who, String> {
        let endpoint = self.get(url, uri).await?;
        let entity = &endpoint["ConnectedEntities"][0];
        if entity["EntityRole"] == "Initiator" {
            return text(&entity["Identifiers"][0]["DurableName"], uri).map(Who::Host);
        }
        let device = link(&entity["EntityLink"]).ok_or_else(|| format!("{uri} leads to no device"))?;
        text(&self.get(url, &device).await?["SerialNumber"], &device).map(Who::Gpu)
    }

    /// A resource block: of a host, or of a GPU.
    async fn who_is_block(&self, url: &str, uri: &str) -> Result<Who, String> {
        let block = self.get(url, uri).await?;
        if let Some(system) = links(&block["ComputerSystems"]).first() {
            return text(&self.get(url, system).await?["UUID"], system).map(Who::Host);
        }
        let processors = links(&block["Processors"]);
        let processor = processors
            .first()
            .ok_or_else(|| format!("{uri} is of neither a host nor a GPU"))?;
        text(&self.get(url, processor).await?["SerialNumber"], processor).map(Who::Gpu)
    }

    async fn members_of(&self, url: &str, collection: &str) -> Result<Vec<String>, String> {
        let mut members = Vec::new();
        let mut next = Some(collection.to_owned());
        while let Some(page) = next {
            let page = self.get(url, &page).await?;
            members.extend(links(&page["Members"]));
            next = page["Members@odata.nextLink"].as_str().map(str::to_owned);
        }
        Ok(members)
    }

    async fn get(&self, url: &str, path: &str) -> Result<Value, String> {
        self.get_if_there(url, path)
            .await?
            .ok_or_else(|| format!("{url}{path} is not there"))
    }

    async fn get_if_there(&self, url: &str, path: &str) -> Result<Option<Value>, String> {
        let request = self
            .http
            .get(format!("{url}{path}"))
            .basic_auth(&self.username, Some(&self.password));
        let answer = request
            .send()
            .await
            .map_err(|error| format!("{url}{path}: {error}"))?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = answer.error_for_status().map_err(|error| error.to_string())?;
        answer
            .json()
            .await
            .map(Some)
            .map_err(|error| format!("{url}{path}: {error}"))
    }
}

fn link(value: &Value) -> Option<String> {
    value["@odata.id"].as_str().map(str::to_owned)
}

fn links(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(link).collect()
}

fn text(value: &Value, uri: &str) -> Result<String, String> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{uri} does not say who it is"))
}
