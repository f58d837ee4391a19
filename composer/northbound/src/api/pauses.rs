//! Stopping what changes hardware, and letting it go on. Each answer has all that is paused then.

use super::paths::Paths;
use super::{Body, Listed, Many};
use crate::Api;
use crate::auth::Asker;
use axum::extract::{Extension, State};
use poolwright_service::{ErrorCode, Pause, Paused, ServiceError};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/pauses", all)
        .post("/pause", pause)
        .post("/resume", resume)
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Stop {
    /// `all`, `automation`, `endpoint/NAME` or `schedule/NAME`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    what: Paused,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct GoOn {
    /// `all`, `automation`, `restored`, `damaged/KIND/ID`, `endpoint/NAME` or `schedule/NAME`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    what: Paused,
    /// Discards a damaged document, which is repaired otherwise.
    #[serde(default)]
    discard: bool,
}

async fn all(State(api): State<Api>) -> Listed<Pause> {
    Ok(Many(api.composer.all_pauses().await?))
}

async fn pause(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(body): Body<Stop>,
) -> Listed<Pause> {
    whole(async move {
        by.composer(&api)
            .pause(body.what, &by.account, &body.reason)
            .await
    })
    .await
}

async fn resume(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(body): Body<GoOn>,
) -> Listed<Pause> {
    let composer = by.composer(&api);
    whole(async move {
        match (&body.what, body.discard) {
            (Paused::Damaged(document), true) => composer.discard(document, &by.account).await,
            (_, true) => Err(ServiceError::bad_request(
                "only a damaged document can be discarded: \"damaged/KIND/ID\"",
            )),
            (what, false) => composer.resume(what, &by.account).await,
        }
    })
    .await
}

/// Goes on where whoever asked hangs up: what is written down and what holds must not be two things.
async fn whole(
    change: impl Future<Output = Result<Vec<Pause>, ServiceError>> + Send + 'static,
) -> Listed<Pause> {
    let done = tokio::spawn(change).await;
    let failed = |error| ServiceError::new(ErrorCode::Internal, format!("cut off: {error}"));
    Ok(Many(done.map_err(failed)??))
}
