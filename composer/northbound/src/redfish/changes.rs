//! What is changed at each place, by somebody who may.

use super::body::of_action;
use super::composing::Asked;
use super::message::Refusal;
use super::tree::Reader;
use super::wire::{matches_tag, parsed};
use super::{
    Redfish, access, accounts, aggregation, certificates, events, jobs, manifest, sessions, tasks, uri,
};
use crate::auth::Asker;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use poolwright_service::accounts::Privilege;
use serde_json::Value;

pub(super) async fn change(
    redfish: &Redfish,
    asker: &Asker,
    parts: &Parts,
    below: &[&str],
    body: &[u8],
) -> Result<Response, Refusal> {
    let api = &redfish.api;
    // Accounts, sessions and the certificate are there before the pool is.
    if !matches!(
        below,
        ["SessionService" | "AccountService" | "CertificateService", ..]
    ) {
        api.composer.may_be_asked()?;
    }
    if_match(redfish, asker, &parts.headers, below).await?;
    let acts = below.contains(&"Actions");
    let body = || if acts { of_action(body) } else { parsed(body) };
    match (&parts.method, below) {
        (&Method::DELETE, ["SessionService", "Sessions", id]) => sessions::end(api, asker, id).await,
        (&Method::PATCH, ["SessionService"]) => {
            access::change(redfish, access::Service::Sessions, &parts.headers, &body()?).await
        }
        (&Method::PATCH, ["AccountService"]) => {
            access::change(redfish, access::Service::Accounts, &parts.headers, &body()?).await
        }
        (&Method::POST, ["AccountService", "Accounts"]) => accounts::add(redfish, &body()?).await,
        (&Method::PATCH, ["AccountService", "Accounts", name]) => {
            let only_own = !asker.role.has(Privilege::ConfigureUsers) || asker.must_change_password;
            accounts::change(redfish, asker, name, &parts.headers, &body()?, only_own).await
        }
        (&Method::DELETE, ["AccountService", "Accounts", name]) => {
            accounts::remove(redfish, name, &parts.headers).await
        }
        (&Method::DELETE, ["TaskService", "Tasks" | "TaskMonitors", name]) => {
            tasks::cancel(api, asker, name).await
        }
        (&Method::DELETE, ["JobService", "Jobs", name]) => jobs::remove(api, asker, name).await,
        (&Method::POST, ["JobService", "Jobs", name, "Actions", action]) => {
            jobs::act(api, asker, name, action, &body()?).await
        }
        (method, ["EventService", place @ ..]) => {
            let body = match *method {
                Method::DELETE => Value::Null,
                _ => body()?,
            };
            events::change(api, asker, method, place, &body).await
        }
        (&Method::POST, ["AggregationService", "AggregationSources"]) => {
            aggregation::add(api, &body()?).await
        }
        (&Method::DELETE, ["AggregationService", "AggregationSources", name]) => {
            aggregation::remove(api, name).await
        }
        (
            &Method::POST,
            [
                "AggregationService",
                "AggregationSources",
                name,
                "Actions",
                "Oem",
                action,
            ],
        ) => aggregation::act(api, name, action, &body()?).await,
        (&Method::POST, ["CertificateService", "Actions", action]) => {
            certificates::act(api, action, &body()?).await
        }
        (method, ["Systems" | "CompositionService", ..]) => {
            let pool = redfish.indexed.pool(&api.composer).await?;
            let asked = Asked {
                redfish,
                pool: &pool,
                asker,
                headers: &parts.headers,
            };
            match (method, below) {
                (&Method::POST, ["CompositionService", "Actions", action]) => {
                    manifest::compose(&asked, action, &body()?).await
                }
                (&Method::DELETE, ["CompositionService", "CompositionReservations", id]) => {
                    manifest::end(&asked, id).await
                }
                (&Method::PATCH, ["Systems", name]) => asked.patch(name, &body()?).await,
                (&Method::POST, ["Systems"]) => asked.compose(&body()?).await,
                (&Method::DELETE, ["Systems", name]) => asked.decompose(name).await,
                (&Method::POST, ["Systems", name, "Actions", action]) => {
                    asked.act(name, action, &body()?).await
                }
                _ => Err(Refusal::nothing_there(parts.uri.path())),
            }
        }
        _ => Err(Refusal::nothing_there(parts.uri.path())),
    }
}

/// A change is made only to what the client has seen, where it says what that was.
pub(super) async fn if_match(
    redfish: &Redfish,
    asker: &Asker,
    headers: &HeaderMap,
    below: &[&str],
) -> Result<(), Refusal> {
    if !headers.contains_key(header::IF_MATCH) {
        return Ok(());
    }
    let Some(now) = Reader::new(redfish, Some(asker)).read(below).await? else {
        return Ok(());
    };
    let tag = now["@odata.etag"].as_str().unwrap_or_default();
    match matches_tag(headers, header::IF_MATCH, tag) {
        true => Ok(()),
        false => Err(Refusal::changed_meanwhile(&uri::at(&below.join("/")))),
    }
}
