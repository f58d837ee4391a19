//! Composing and decomposing: POST of a system, DELETE and PATCH of one, and the actions that add and remove a block.
//!
//! What names its blocks is attached by name; what names only what it wants becomes a demand, and the planner chooses.
//! A change that is done soon is answered with what came of it, any other with its task; sooner where the client prefers
//! that.

use super::message::Refusal;
use super::pool::{Block, Pool};
use super::{Redfish, body, preference, put, routes, tasks, uri, wishes};
use crate::auth::Asker;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_model::id::{CompositionId, GpuId, HostId};
use poolwright_redfish_model::ComputerSystem;
use poolwright_service::demand::DemandSpec;
use poolwright_service::{
    Change, Composition, ErrorCode, How, Operation, OperationState, Purpose, Release, Seen, ServiceError,
};
use serde_json::Value;
use std::time::Duration;

/// A change that takes longer is answered with its task.
const SOON: Duration = Duration::from_secs(20);

const ADD: &str = "ComputerSystem.AddResourceBlock";
/// The actions of a composed system.
const ACTIONS: [&str; 2] = [ADD, "ComputerSystem.RemoveResourceBlock"];

/// One request that changes something.
pub(crate) struct Asked<'r> {
    pub redfish: &'r Redfish,
    pub pool: &'r Pool,
    pub asker: &'r Asker,
    pub headers: &'r HeaderMap,
}

impl Asked<'_> {
    /// POST to the systems.
    pub async fn compose(&self, body: &Value) -> Result<Response, Refusal> {
        wishes::check(body)?;
        let change = match wishes::blocks(body) {
            Some(blocks) => self.of_blocks(body, blocks).await?,
            None => self.of_wishes(body).await?,
        };
        self.answered(change, Done::Composed).await
    }

    /// A composition of just these blocks.
    async fn of_blocks(&self, body: &Value, blocks: &[Value]) -> Result<Change, Refusal> {
        let (gpus, host) = self.named(blocks)?;
        let composer = self.asker.composer(&self.redfish.api);
        let name = body["Name"].as_str().unwrap_or("composed through Redfish");
        let changed = composer
            .attach_for(&gpus, &host, &Purpose::labelled(name), self.by(), &self.how()?)
            .await;
        Ok(changed?)
    }

    /// What blocks stand for: one host, and GPUs.
    pub fn named(&self, blocks: &[Value]) -> Result<(Vec<GpuId>, HostId), Refusal> {
        let (mut hosts, mut gpus) = (Vec::new(), Vec::new());
        for block in blocks {
            match self.block(block)? {
                Block::Host(host) => hosts.push(host.id.clone()),
                Block::Unit(unit) => gpus.extend(unit.gpus.iter().cloned()),
            }
        }
        match hosts.as_slice() {
            [host] => Ok((gpus, host.clone())),
            other => {
                let text = format!(
                    "A system is composed of one host's block, and not of {}.",
                    other.len()
                );
                let next = "Name the block of one host (ResourceBlockType ComputerSystem) and those of GPUs.";
                let args = ["Links/ResourceBlocks", "the kinds of these blocks"];
                Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "PropertyValueConflict",
                    &args,
                    text,
                    next,
                ))
            }
        }
    }

    /// The composed system that a reference leads to.
    pub fn linked_composition(&self, link: &Value) -> Result<&Composition, Refusal> {
        self.composition(linked_system(link)?, "DELETE")
    }

    /// PATCH of a composed system: other blocks of GPUs than it has, in one operation.
    pub async fn patch(&self, name: &str, body: &Value) -> Result<Response, Refusal> {
        let composition = self.of_blocks_alone(name, "PATCH")?;
        let understood = ["Links/ResourceBlocks/*/@odata.id"];
        body::update(ComputerSystem::SCHEMA, &understood, body)?;
        let Some(blocks) = body["Links"]["ResourceBlocks"].as_array() else {
            return Err(Refusal::nothing_to_do());
        };
        let (wanted, host) = self.named(&self.patched(name, blocks)?)?;
        if host != composition.host || wanted.is_empty() {
            let text = "A system keeps its host, and has GPUs.";
            let next = "Name the block of its host with those of GPUs; DELETE it where it is to have none.";
            let args = ["Links/ResourceBlocks", "the host of the system"];
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "PropertyValueConflict",
                &args,
                text,
                next,
            ));
        }
        let had: Vec<GpuId> = composition.gpus().cloned().collect();
        let new: Vec<GpuId> = wanted.iter().filter(|gpu| !had.contains(gpu)).cloned().collect();
        let old: Vec<GpuId> = had.into_iter().filter(|gpu| !wanted.contains(gpu)).collect();
        let composer = self.asker.composer(&self.redfish.api);
        let seen = self.seen(name, None).await?;
        let how = How { seen, ..self.how()? };
        let (id, by) = (&composition.id, self.by());
        let change = match (new.is_empty(), old.is_empty()) {
            (true, true) => return Ok(StatusCode::NO_CONTENT.into_response()),
            (false, true) => composer.extend(&new, id, by, &how).await?,
            (true, false) => composer.detach(&old, by, &how).await?,
            (false, false) => composer.exchange(&new, &old, id, by, &how).await?,
        };
        self.answered(change, Done::Changed).await
    }

    /// An array of blocks as a PATCH writes it: `null` takes one away, `{}` leaves it (DSP0266, "PATCH on array
    /// properties").
    fn patched(&self, name: &str, blocks: &[Value]) -> Result<Vec<Value>, Refusal> {
        let shown = super::systems::one(self.pool, name)
            .map(|system| super::shown(&system))
            .transpose()?;
        let shown = shown.unwrap_or_default();
        let had = &shown["Links"]["ResourceBlocks"];
        let written = blocks.iter().enumerate().filter(|(_, block)| !block.is_null());
        let kept =
            |(at, block): (usize, &Value)| match block.as_object().is_some_and(serde_json::Map::is_empty) {
                true => had[at].clone(),
                false => block.clone(),
            };
        Ok(written.map(kept).collect())
    }

    /// The demand of a request that names no resource blocks, after a check of the names in it.
    pub fn wanted(&self, request: &Value) -> Result<DemandSpec, Refusal> {
        let spec = wishes::wishes(request)?;
        let gpus = self.pool.topology().gpus.iter();
        let kinds = gpus.filter_map(|gpu| gpu.profile.as_deref()).collect();
        wishes::are_known(request, &spec, &kinds)?;
        Ok(spec)
    }

    /// A composition of whatever fits: so many GPUs, or what a model needs.
    async fn of_wishes(&self, body: &Value) -> Result<Change, Refusal> {
        let spec = self.wanted(body)?;
        let composer = self.asker.composer(&self.redfish.api);
        Ok(composer.compose(spec, self.by(), &self.how()?).await?)
    }

    /// DELETE of a system.
    pub async fn decompose(&self, name: &str) -> Result<Response, Refusal> {
        let seen = self.seen(name, None).await?;
        let how = How { seen, ..self.how()? };
        let change = self.released(name, &how).await?;
        self.answered(change, Done::Decomposed).await
    }

    /// Releases a composed system. If a request with the same idempotency key released it before, returns the result of
    /// that release.
    pub async fn released(&self, name: &str, how: &How) -> Result<Change, Refusal> {
        let composer = self.asker.composer(&self.redfish.api);
        let gone = match (self.composition(name, "DELETE"), &how.key) {
            (Ok(composition), _) => {
                let what = Release::Composition(composition.id.clone());
                return Ok(composer.release(what, self.by(), how).await?);
            }
            (Err(gone), None) => return Err(gone),
            (Err(gone), Some(key)) => composer.released_under(self.by(), key).await?.ok_or(gone)?,
        };
        let named = |id: &CompositionId| super::names::plain(id.as_str()) == name;
        match gone.plan.releases.iter().any(|one| named(&one.id)) {
            true => Ok(gone),
            false => Err(Refusal::nothing_there(&uri::system(name))),
        }
    }

    /// The actions of a composed system.
    pub async fn act(&self, name: &str, action: &str, body: &Value) -> Result<Response, Refusal> {
        if !ACTIONS.contains(&action) {
            let path = format!("{}/Actions/{action}", uri::system(name));
            return Err(Refusal::nothing_there(&path));
        }
        let composition = self.of_blocks_alone(name, "POST")?;
        let understood = [
            "ResourceBlock/@odata.id",
            "ResourceBlockETag",
            "ComputerSystemETag",
        ];
        body::act(ComputerSystem::SCHEMA, action, &understood, body)?;
        let seen = self.seen(name, body["ComputerSystemETag"].as_str()).await?;
        let how = How { seen, ..self.how()? };
        let link = &body["ResourceBlock"];
        let block = self.block(link)?;
        if let Some(place) = below(link) {
            self.still_as_seen(&place, body["ResourceBlockETag"].as_str())
                .await?;
        }
        let unfit = |status, text: String, next: &str| {
            let args = ["ResourceBlock", link["@odata.id"].as_str().unwrap_or_default()];
            Refusal::new(status, "ActionParameterValueConflict", &args, text, next)
        };
        let Block::Unit(unit) = block else {
            let text = "A host can't be added to a system or removed from it: a system is one host's.";
            return Err(unfit(
                StatusCode::BAD_REQUEST,
                text.to_owned(),
                "Name the block of GPUs.",
            ));
        };
        let composer = self.asker.composer(&self.redfish.api);
        let gpus: &[GpuId] = &unit.gpus;
        let change = match action {
            ADD => composer.extend(gpus, &composition.id, self.by(), &how).await?,
            _ => {
                if !composition.gpus().any(|gpu| gpus.contains(gpu)) {
                    if let Some(before) = composer.detached_before(gpus, self.by(), &how).await? {
                        return self.answered(before, Done::Changed).await;
                    }
                    let text = format!("{name} has no such block.");
                    let next = "Links.ResourceBlocks of the system has those that it has.";
                    return Err(unfit(StatusCode::CONFLICT, text, next));
                }
                if composition.gpus().all(|gpu| gpus.contains(gpu)) {
                    let text = format!("{name} has no other GPUs, and a system has some.");
                    let next = format!("To end it DELETE {}.", uri::system(name));
                    return Err(unfit(StatusCode::CONFLICT, text, &next));
                }
                composer.detach(gpus, self.by(), &how).await?
            }
        };
        self.answered(change, Done::Changed).await
    }

    /// What the client saw of a system where it said a tag: what is changed is just that. The revision is read before the
    /// tag is compared, so that it is no newer than what has this tag.
    async fn seen(&self, name: &str, tag: Option<&str>) -> Result<Option<Seen>, Refusal> {
        if tag.is_none() && !self.headers.contains_key(header::IF_MATCH) {
            return Ok(None);
        }
        let Some(composition) = self.pool.composition(name) else {
            return Ok(None);
        };
        let seen = self.redfish.api.composer.seen(&composition.id).await?;
        let place = ["Systems", name];
        super::changes::if_match(self.redfish, self.asker, self.headers, &place).await?;
        self.still_as_seen(&place, tag).await?;
        Ok(seen)
    }

    /// Whether a resource is still what the client saw when it said this tag.
    async fn still_as_seen(&self, place: &[&str], tag: Option<&str>) -> Result<(), Refusal> {
        let Some(tag) = tag else { return Ok(()) };
        let reader = super::tree::Reader::new(self.redfish, Some(self.asker));
        let now = reader.read(place).await?;
        match now.is_some_and(|now| now["@odata.etag"] == *tag) {
            true => Ok(()),
            false => Err(Refusal::changed_meanwhile(&uri::at(&place.join("/")))),
        }
    }

    fn composition(&self, name: &str, method: &str) -> Result<&Composition, Refusal> {
        match (self.pool.composition(name), self.pool.host(name)) {
            (Some(composition), _) => Ok(composition),
            (None, Some(_)) => Err(Refusal::not_allowed(method, &uri::system(name), routes::READ)),
            (None, None) => Err(Refusal::nothing_there(&uri::system(name))),
        }
    }

    /// A composition of named blocks. Refuses one that serves a demand: the planner chooses its GPUs.
    fn of_blocks_alone(&self, name: &str, method: &str) -> Result<&Composition, Refusal> {
        let composition = self.composition(name, method)?;
        let Some(demand) = &composition.demand else {
            return Ok(composition);
        };
        let path = uri::system(name);
        let next = format!(
            "It serves the demand {demand}, for which the planner chooses: DELETE {path}, and compose again; or compose of \
             blocks that are named."
        );
        Err(Refusal::not_allowed(method, &path, routes::DELETE).with_next(&next))
    }

    fn block(&self, link: &Value) -> Result<Block<'_>, Refusal> {
        let place = link["@odata.id"].as_str().unwrap_or_default();
        let found = match below(link).as_deref() {
            Some(["CompositionService", "ResourceBlocks", name]) => self.pool.block(name),
            _ => None,
        };
        found.ok_or_else(|| {
            let text = format!("There is no resource block at {place}.");
            let next = "CompositionService/ResourceBlocks has those that there are.";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "ResourceBlockNotFound",
                &[place],
                text,
                next,
            )
        })
    }

    fn by(&self) -> &str {
        &self.asker.account
    }

    /// The same, for one part of a request.
    pub fn how_for(&self, part: &str) -> Result<How, Refusal> {
        let how = self.how()?;
        Ok(How {
            key: how.key.map(|key| format!("{key}/{part}")),
            ..how
        })
    }

    /// The same request under the same key is one.
    fn how(&self) -> Result<How, Refusal> {
        let Some(key) = self.headers.get("idempotency-key") else {
            return Ok(How::default());
        };
        let key = key.to_str().map_err(|_| {
            let error = ServiceError::bad_request("the Idempotency-Key is not plain text");
            Refusal::from(error)
        })?;
        Ok(How {
            key: Some(key.to_owned()),
            ..How::default()
        })
    }

    async fn answered(&self, change: Change, done: Done) -> Result<Response, Refusal> {
        let Some(operation) = change.operation else {
            // It was so already.
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        let composer = self.asker.composer(&self.redfish.api);
        let preferred = preference::respond_async(self.headers);
        let patience = preferred.map_or(SOON, |wait| wait.min(SOON));
        let operation = match composer.wait(&operation.id, patience).await {
            Ok(operation) => operation,
            Err(ServiceError {
                code: ErrorCode::Timeout,
                ..
            }) => operation,
            Err(error) => return Err(error.into()),
        };
        let composed = change
            .plan
            .composes
            .iter()
            .map(|one| one.id.clone())
            .collect::<Vec<_>>();
        match (operation.state, done) {
            (OperationState::Completed, Done::Composed) => {
                let pool = self.redfish.indexed.pool(&composer).await?;
                let name = composed.iter().find_map(|id| pool.composed(id));
                let name = name.ok_or_else(|| {
                    ServiceError::new(ErrorCode::Conflict, "what was composed is gone again already")
                })?;
                let system = super::systems::one(&pool, name)
                    .map(|system| super::shown(&system))
                    .transpose()?;
                super::created(&uri::system(name), system.unwrap_or_default())
            }
            (OperationState::Completed, Done::Decomposed | Done::Changed) => {
                Ok(StatusCode::NO_CONTENT.into_response())
            }
            _ => {
                let mut response = on_its_way(&operation)?;
                if preferred.is_some() {
                    put(
                        response.headers_mut(),
                        preference::APPLIED,
                        preference::RESPOND_ASYNC,
                    );
                }
                Ok(response)
            }
        }
    }
}

/// What a change was for.
#[derive(Clone, Copy)]
enum Done {
    Composed,
    Changed,
    Decomposed,
}

/// What is not done yet is told as its task, and what came to nothing as an error.
pub(super) fn on_its_way(operation: &Operation) -> Result<Response, Refusal> {
    let name = super::names::plain(operation.id.as_str());
    if matches!(
        operation.state,
        OperationState::RolledBack | OperationState::Cancelled | OperationState::Failed
    ) {
        let why = operation
            .error()
            .unwrap_or_else(|| "it came to nothing".to_owned());
        let text = format!("It was not done, and everything is as it was before: {why}");
        let next = format!("{} says more.", uri::task(&name));
        return Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "OperationFailed",
            &[],
            text,
            &next,
        ));
    }
    let body = super::shown(&tasks::one(&name, operation))?;
    let mut response = (StatusCode::ACCEPTED, axum::Json(body)).into_response();
    put(response.headers_mut(), header::LOCATION, &uri::monitor(&name));
    put(response.headers_mut(), header::RETRY_AFTER, "2");
    Ok(response)
}

/// The name of the system that a reference leads to, whether there is one or not.
pub(super) fn linked_system(link: &Value) -> Result<&str, Refusal> {
    match below(link).as_deref() {
        Some(["Systems", name]) => Ok(*name),
        _ => Err(Refusal::nothing_there(
            link["@odata.id"].as_str().unwrap_or_default(),
        )),
    }
}

/// The segments of a link below the root.
fn below(link: &Value) -> Option<Vec<&str>> {
    let path = link["@odata.id"].as_str()?.strip_prefix(uri::ROOT)?;
    Some(path.split('/').filter(|part| !part.is_empty()).collect())
}
