//! What is plugged in where: asked of every guest, just now.

use crate::lab::{Host, Lab};
use crate::monitor::{Monitor, Trouble};
use futures_util::future::join_all;
use poolwright_driver::{Bound, DriverError};
use poolwright_model::fault::FaultKind;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// One guest answers this quickly, or its QMP is taken by somebody else.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one guest said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its devices, each with what it is plugged into.
    Plugged {
        devices: BTreeMap<String, String>,
        version: String,
    },
    /// It does not run, and has nothing.
    Off(String),
    /// It runs, and is not the one that it should be, or does not answer.
    Unknown(FaultKind, String),
}

/// What all guests said, in the lab's order.
pub(crate) struct Look<'a> {
    pub lab: &'a Lab,
    pub said: Vec<Said>,
}

/// Asks all guests side by side. Ends in time whatever they do.
pub(crate) async fn look(lab: &Lab, deadline: Duration) -> Look<'_> {
    let patience = PATIENCE.min(deadline);
    let asked = lab.hosts.iter().map(|host| ask(host, patience));
    Look {
        lab,
        said: join_all(asked).await,
    }
}

/// Connects to a guest, and makes sure that it is the one that it should be.
pub(crate) async fn connect(host: &Host) -> Result<Monitor, Trouble> {
    let mut monitor = Monitor::connect(&host.qmp).await?;
    let uuid = monitor.execute("query-uuid", json!({})).await?;
    let uuid = uuid["UUID"].as_str().unwrap_or_default().to_ascii_lowercase();
    if uuid != host.uuid.to_string() {
        let expected = host.uuid;
        let message = format!("it is the guest {uuid}, not {expected}: start QEMU with -uuid {expected}");
        return Err(Trouble::Refused(message));
    }
    Ok(monitor)
}

async fn ask(host: &Host, patience: Duration) -> Said {
    let asked = async {
        let mut monitor = connect(host).await?;
        let devices = monitor.plugged().await?;
        Ok(Said::Plugged {
            devices,
            version: monitor.version,
        })
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(Ok(said)) => said,
        Ok(Err(Trouble::Off(why))) => Said::Off(why),
        Ok(Err(Trouble::Refused(why))) => Said::Unknown(FaultKind::Conflict, why),
        Ok(Err(Trouble::Lost(why))) => Said::Unknown(FaultKind::Malformed, why),
        Err(_) => Said::Unknown(FaultKind::Timeout, unanswered(patience)),
    }
}

pub(crate) fn unanswered(patience: Duration) -> String {
    let seconds = patience.as_secs_f32();
    format!("no answer within {seconds} s: is somebody else connected to its QMP socket?")
}

impl Look<'_> {
    /// Where a GPU is. An error where a guest that does not answer might have it.
    pub fn bound(&self, gpu: &str) -> Result<Bound, DriverError> {
        let all = self.lab.hosts.iter().zip(&self.said);
        let at = |(host, said): (&crate::lab::Host, &Said)| match said {
            Said::Plugged { devices, .. } => Some(format!("{}/{}", host.id, devices.get(gpu)?)),
            _ => None,
        };
        let mut found: Vec<String> = all.clone().filter_map(at).collect();
        let mute = all
            .filter_map(|(host, said)| Some((host, said.unknown()?)))
            .next();
        match (found.len(), mute) {
            (0, Some((host, (fault, why)))) => {
                let message = format!("whether {gpu} is at guest {} is not known: {why}", host.id);
                Err(DriverError::no_effect(message).with_fault(fault))
            }
            (0, None) => Ok(Bound::Free),
            (1, _) => Ok(Bound::To {
                port_address: found.remove(0),
            }),
            _ => Ok(Bound::Several {
                port_addresses: found,
            }),
        }
    }

    /// What of the lab is plugged into a port.
    pub fn taken_by(&self, host: &str, port: &str) -> Option<&str> {
        let place = self.lab.hosts.iter().position(|known| known.id == host)?;
        let Said::Plugged { devices, .. } = self.said.get(place)? else {
            return None;
        };
        let mut there = devices.iter().filter(|(_, at)| *at == port);
        there.next().map(|(device, _)| device.as_str())
    }
}

impl Said {
    fn unknown(&self) -> Option<(FaultKind, &str)> {
        match self {
            Self::Unknown(fault, why) => Some((*fault, why)),
            _ => None,
        }
    }
}
