//! The sessions that others have at a service.

use super::Client;
use super::auth::Auth;
use super::collection::Member;
use super::error::{Error, ErrorKind, NotSent, Result};
use super::write::WriteOptions;
use serde::Deserialize;

/// How often it is looked whether there is another session.
const ROUNDS: u32 = 3;

/// What is needed of a session.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Session {
    user_name: Option<String>,
}

impl Client {
    /// Ends every session of our account but our own, and tells how many there were; `None` where the service has no
    /// sessions, or doesn't show them or whose they are. When this returns a number, none of them is left.
    pub async fn end_other_sessions(&self) -> Result<Option<u32>> {
        let Auth::Session { user, .. } = self.0.gate.auth() else {
            return Ok(None);
        };
        let mut ended = 0;
        // Once more, to see that they are gone.
        for _ in 0..ROUNDS {
            let found = self.read_leaves::<Session>(self.0.gate.sessions().as_str()).await;
            let members = match found {
                Ok(found) => found.members,
                Err(error) if has_none(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            // Reading them has opened ours, if there was none.
            let Some(own) = self.0.gate.own_session().await else {
                return Ok(None);
            };
            let mut others = Vec::new();
            for Member { path, outcome } in members {
                match outcome {
                    Ok(_) if same_place(&path, &own) => {}
                    Ok(session) => match session.value.user_name {
                        // Some services tell the name in their own letters.
                        Some(name) if name.eq_ignore_ascii_case(user) => others.push(path),
                        Some(_) => {}
                        None => return Ok(None),
                    },
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
            if others.is_empty() {
                return Ok(Some(ended));
            }
            for other in others {
                match self.delete(&other, WriteOptions::default()).await {
                    Ok(_) => ended += 1,
                    // It has lapsed, or somebody else ended it.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let message =
            "others go on opening sessions with our account: give the manager one that nobody else uses";
        Err(Error::harmless(
            format!("end the sessions at {}", self.0.gate.sessions().url()),
            NotSent::BadRequest(message.into()),
        ))
    }

    /// How many sessions there are beside our own, of all accounts; `None` where the service has no sessions, or doesn't
    /// show ours, so that it may hide others.
    pub async fn other_sessions(&self) -> Result<Option<usize>> {
        let gate = &self.0.gate;
        if !matches!(gate.auth(), Auth::Session { .. }) {
            return Ok(None);
        }
        let found = match self.collection_members(gate.sessions().as_str()).await {
            Ok(found) => found,
            Err(error) if has_none(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(fault) = found.faults.into_iter().next() {
            return Err(fault);
        }
        let Some(own) = gate.own_session().await else {
            return Ok(None);
        };
        let others = found.members.iter().filter(|path| !same_place(path, &own));
        let others = others.count();
        Ok((others < found.members.len()).then_some(others))
    }
}

fn same_place(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn has_none(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(refusal) if matches!(refusal.status, 403 | 404 | 405 | 501))
}
