//! The sessions that others have at a service under our account.

use super::Client;
use super::auth::Auth;
use super::collection::Member;
use super::error::{Error, ErrorKind, Result};
use super::write::WriteOptions;
use serde::Deserialize;

/// What is needed of a session.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Session {
    user_name: Option<String>,
}

impl Client {
    /// Ends every session of our account but our own, and tells how many there were; `None` where the service has no
    /// sessions or doesn't show them. When this returns well, none of them is left.
    pub async fn end_other_sessions(&self) -> Result<Option<u32>> {
        let Auth::Session { user, .. } = self.0.gate.auth() else {
            return Ok(None);
        };
        let mut ended = 0;
        // Once more, to see that they are gone.
        for _ in 0..2 {
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
                    Ok(session) if session.value.user_name.as_ref() == Some(user) && path != own => {
                        others.push(path)
                    }
                    Ok(_) => {}
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
        Ok(Some(ended))
    }
}

fn has_none(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(refusal) if matches!(refusal.status, 403 | 404 | 405 | 501))
}
