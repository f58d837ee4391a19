//! The action Compose: a manifest of systems to compose and to decompose, that is previewed, kept for the client for a
//! while, or applied.
//!
//! What is previewed or reserved could be composed side by side, all of it. What is applied is begun stanza by stanza, in
//! order; the first that can't be ends it, and what was begun before goes on: its answer says which.

use super::composing::{self, Asked};
use super::message::Refusal;
use super::wishes::{self, wishes};
use super::{body, shown, systems, tasks, uri};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::CompositionService;
use poolwright_service::accounts::Privilege;
use poolwright_service::{
    Change, ErrorCode, MOST_PARTS, OperationState, Part, Purpose, Reservation, ServiceError, Wish, Wished,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// What takes longer is answered with its tasks.
const SOON: Duration = Duration::from_secs(20);
const COMPOSE: &str = "CompositionService.Compose";
/// Of a manifest that is reserved.
const LARGEST_KEPT: usize = 256 << 10;

/// What may be said of a manifest; what a stanza requests is understood by itself.
const UNDERSTOOD: [&str; 9] = [
    "RequestFormat",
    "RequestType",
    "ReservationId",
    "Manifest/Description",
    "Manifest/Timestamp",
    "Manifest/Expand",
    "Manifest/Stanzas/*/StanzaType",
    "Manifest/Stanzas/*/StanzaId",
    "Manifest/Stanzas/*/Request",
];

/// One of a manifest.
#[derive(PartialEq)]
struct Stanza<'b> {
    id: &'b str,
    kind: &'b str,
    request: &'b Value,
}

/// A stanza that was begun.
struct Begun {
    change: Change,
    composes: bool,
}

impl Begun {
    fn composes(change: Change) -> Self {
        Self {
            change,
            composes: true,
        }
    }
}

/// POST to the action.
pub(crate) async fn compose(asked: &Asked<'_>, action: &str, body: &Value) -> Result<Response, Refusal> {
    if action != COMPOSE {
        let path = uri::at(&format!("CompositionService/Actions/{action}"));
        return Err(Refusal::nothing_there(&path));
    }
    let stanzas = read(body)?;
    let reservation = body["ReservationId"].as_str();
    match (body["RequestType"].as_str().unwrap_or_default(), reservation) {
        ("Apply", Some(id)) => apply_reserved(asked, body, id, &stanzas).await,
        (_, Some(_)) => Err(conflict(
            "ReservationId",
            "only what is applied has a reservation already",
        )),
        (_, None) if stanzas.is_empty() => {
            let text = "The manifest has no stanza.";
            let next = "Say what is to be composed or decomposed.";
            Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "EmptyManifest",
                &[],
                text,
                next,
            ))
        }
        ("Apply", None) => apply(asked, body, &stanzas).await,
        ("PreviewReserve", None) => {
            let composer = asked.asker.composer(&asked.redfish.api);
            let wished = wished(asked, &stanzas)?;
            if wished.is_empty() {
                return Err(keeps_nothing());
            }
            // A reservation blocks GPUs for 10 minutes: a manifest that can't be applied gets none.
            are_composed(asked, &stanzas)?;
            let kept = kept(&stanzas)?;
            let reservation = composer
                .reserve(&wished, kept, &asked.asker.account, &asked.asker.version)
                .await?;
            let previewed = previewed(asked, &stanzas, &reservation.parts)?;
            Ok(answer(body, Some(&reservation.id), &stanzas, previewed).into_response())
        }
        (_, None) => {
            let parts = asked
                .redfish
                .api
                .composer
                .preview(&wished(asked, &stanzas)?)
                .await?;
            let previewed = previewed(asked, &stanzas, &parts)?;
            Ok(answer(body, None, &stanzas, previewed).into_response())
        }
    }
}

fn conflict(name: &str, text: &str) -> Refusal {
    let next = "See Manifest_v1 and CompositionService_v1 of DMTF's schemas.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(
        status,
        "ActionParameterValueConflict",
        &[name, "the request"],
        text,
        next,
    )
}

fn keeps_nothing() -> Refusal {
    let text = "There is nothing to be reserved: no stanza composes a system.";
    conflict("Manifest", text)
        .with_next("Apply it without a reservation, or add a stanza that composes a system.")
}

fn unclear(body: &Value, stanza: &str, text: String) -> Refusal {
    let args = [body["RequestType"].as_str().unwrap_or_default(), stanza];
    let next = "See Manifest_v1 of DMTF's schemas.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "UnableToProcessStanzaRequest", &args, text, next)
}

/// Whether a body is a manifest in which all that is wished for is understood.
pub(super) fn is_understood(body: &Value) -> bool {
    let named = |stanza: &Stanza<'_>| wishes::blocks(stanza.request).is_some();
    let is_clear = |stanza: &Stanza<'_>| {
        stanza.kind != "ComposeSystem" || named(stanza) || wishes(stanza.request).is_ok()
    };
    read(body).is_ok_and(|stanzas| stanzas.iter().all(is_clear))
}

/// The stanzas of a body, once that is as it should be.
fn read(body: &Value) -> Result<Vec<Stanza<'_>>, Refusal> {
    body::act(CompositionService::SCHEMA, COMPOSE, &UNDERSTOOD, body)?;
    if body["Manifest"]["Expand"]
        .as_str()
        .is_some_and(|expand| expand != "None")
    {
        return Err(conflict(
            "Manifest",
            "Responses are not expanded: Manifest/Expand can be None alone.",
        ));
    }
    let listed = body["Manifest"]["Stanzas"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if listed.len() > MOST_PARTS {
        return Err(conflict(
            "Manifest",
            &format!("A manifest has at most {MOST_PARTS} stanzas."),
        ));
    }
    let mut stanzas: Vec<Stanza<'_>> = Vec::new();
    for (value, number) in listed.iter().zip(1..) {
        let id = value["StanzaId"].as_str().unwrap_or_default();
        if id.is_empty() || id.len() > 64 || stanzas.iter().any(|stanza| stanza.id == id) {
            let text = format!("Stanza {number} has no StanzaId of its own with 1 to 64 characters.");
            return Err(conflict("Manifest", &text));
        }
        let kind = value["StanzaType"].as_str().unwrap_or_default();
        let request = &value["Request"];
        match kind {
            "ComposeSystem" => {
                let place = format!("Manifest/Stanzas/{}/Request", number - 1);
                wishes::check(request).map_err(|refusal| refusal.within(&place))?;
            }
            "DecomposeSystem" if is_reference(request) => {}
            "DecomposeSystem" => {
                let text = format!("Request of stanza {id} is no reference to a system.");
                return Err(unclear(body, id, text));
            }
            other => {
                let text =
                    format!("Stanza {id} is {other:?}: ComposeSystem and DecomposeSystem are understood.");
                return Err(unclear(body, id, text));
            }
        }
        stanzas.push(Stanza { id, kind, request });
    }
    Ok(stanzas)
}

/// Whether something is a reference, and says nothing else.
fn is_reference(said: &Value) -> bool {
    said["@odata.id"].is_string() && body::strange(&[], said).is_empty()
}

/// The manifest, as a reservation stores and shows it.
fn written(stanzas: &[Stanza<'_>]) -> Value {
    let one = |stanza: &Stanza<'_>| json!({ "StanzaType": stanza.kind, "StanzaId": stanza.id, "Request": stanza.request });
    let stanzas: Vec<Value> = stanzas.iter().map(one).collect();
    json!({ "Expand": "None", "Stanzas": stanzas })
}

/// The same, if that is no more than is kept.
fn kept(stanzas: &[Stanza<'_>]) -> Result<Value, Refusal> {
    let written = written(stanzas);
    match written.to_string().len() <= LARGEST_KEPT {
        true => Ok(written),
        false => Err(conflict(
            "Manifest",
            &format!("A manifest that is reserved has at most {LARGEST_KEPT} bytes."),
        )),
    }
}

/// The stanzas of a stored manifest.
fn kept_stanzas(kept: &Value) -> Vec<Stanza<'_>> {
    fn one(value: &Value) -> Stanza<'_> {
        Stanza {
            id: value["StanzaId"].as_str().unwrap_or_default(),
            kind: value["StanzaType"].as_str().unwrap_or_default(),
            request: &value["Request"],
        }
    }
    let listed = kept["Stanzas"].as_array().map(Vec::as_slice);
    listed.unwrap_or_default().iter().map(one).collect()
}

/// Refuses a manifest that differs from the reserved one. An empty manifest stands for the reserved one.
fn is_what_was_reserved(said: &[Stanza<'_>], reservation: &Reservation) -> Result<(), Refusal> {
    let id = &reservation.id;
    let text = match &reservation.asked {
        _ if said.is_empty() => return Ok(()),
        None => format!("Of what reservation {id} was made for no manifest was kept."),
        Some(asked) => {
            let asked = kept_stanzas(asked);
            match asked.iter().zip(said).find(|(asked, said)| asked != said) {
                None if asked.len() == said.len() => return Ok(()),
                Some((asked, said)) if asked.id == said.id => {
                    format!("Stanza {} is not as reservation {id} was made for it.", said.id)
                }
                _ => {
                    let names: Vec<&str> = asked.iter().map(|stanza| stanza.id).collect();
                    format!("Reservation {id} is of the stanzas {}.", names.join(", "))
                }
            }
        }
    };
    let place = uri::at(&format!("CompositionService/CompositionReservations/{id}"));
    let next = format!("Leave the Manifest out, or send the reserved one: {place}.");
    Err(conflict("Manifest", &text).with_next(&next))
}

fn label(stanza: &Stanza<'_>) -> String {
    stanza.request["Name"].as_str().unwrap_or(stanza.id).to_owned()
}

/// What the stanzas that compose wish for.
fn wished(asked: &Asked<'_>, stanzas: &[Stanza<'_>]) -> Result<Vec<Wish>, Refusal> {
    let composing = stanzas.iter().filter(|stanza| stanza.kind == "ComposeSystem");
    let wish = |stanza: &Stanza<'_>| {
        let what = match wishes::blocks(stanza.request) {
            Some(blocks) => {
                let (gpus, host) = asked.named(blocks)?;
                Wished::Named { gpus, host }
            }
            None => Wished::Fitting(Box::new(asked.wanted(stanza.request)?)),
        };
        Ok(Wish {
            stanza: stanza.id.to_owned(),
            label: label(stanza),
            what,
        })
    };
    composing.map(wish).collect()
}

/// That there is each system which is to be decomposed.
fn are_composed(asked: &Asked<'_>, stanzas: &[Stanza<'_>]) -> Result<(), Refusal> {
    let mut decomposing = stanzas.iter().filter(|stanza| stanza.kind == "DecomposeSystem");
    decomposing.try_for_each(|stanza| asked.linked_composition(stanza.request).map(drop))
}

/// What would come of each stanza.
fn previewed(asked: &Asked<'_>, stanzas: &[Stanza<'_>], parts: &[Part]) -> Result<Vec<Value>, Refusal> {
    let one = |stanza: &Stanza<'_>| match parts.iter().find(|part| part.stanza == stanza.id) {
        Some(part) => Ok(would_be(asked, part)),
        None => {
            let composition = asked.linked_composition(stanza.request)?;
            let name = asked.pool.composed(&composition.id).unwrap_or_default();
            Ok(json!({ "@odata.id": uri::system(name) }))
        }
    };
    stanzas.iter().map(one).collect()
}

fn would_be(asked: &Asked<'_>, part: &Part) -> Value {
    let links: Vec<Value> = blocks_of(asked, part)
        .into_iter()
        .map(|at| json!({ "@odata.id": at }))
        .collect();
    json!({ "Name": part.label, "SystemType": "Composed", "Links": { "ResourceBlocks": links } })
}

/// The resource blocks of a part: its host's, and those of its GPUs.
fn blocks_of(asked: &Asked<'_>, part: &Part) -> Vec<String> {
    let host = asked.pool.host_block(&part.host);
    let units = part
        .places
        .iter()
        .filter_map(|place| asked.pool.unit_block(&place.unit));
    host.into_iter().chain(units).map(uri::block).collect()
}

/// What is said to the client, with a response to each stanza; those that were not tried have none.
fn answer(
    body: &Value,
    reservation: Option<&str>,
    stanzas: &[Stanza<'_>],
    responses: Vec<Value>,
) -> axum::Json<Value> {
    let mut responses = responses.into_iter();
    let told = |stanza: &Stanza<'_>| {
        let mut told = json!({
            "StanzaType": stanza.kind, "StanzaId": stanza.id, "Request": stanza.request,
        });
        if let Some(response) = responses.next() {
            told["Response"] = response;
        }
        told
    };
    let stanzas: Vec<Value> = stanzas.iter().map(told).collect();
    let mut answer = json!({
        "RequestFormat": "Manifest",
        "RequestType": body["RequestType"],
        "Manifest": { "Expand": "None", "Stanzas": stanzas },
    });
    if let Some(id) = reservation {
        answer["ReservationId"] = json!(id);
    }
    axum::Json(answer)
}

/// Applies what is not reserved.
async fn apply(asked: &Asked<'_>, body: &Value, stanzas: &[Stanza<'_>]) -> Result<Response, Refusal> {
    // What can be seen to be wrong is seen before anything is begun.
    drop(wished(asked, stanzas)?);
    let mut begun = Vec::new();
    for stanza in stanzas {
        begun.push(begin(asked, stanza).await);
        if matches!(begun.last(), Some(Err(_))) {
            break;
        }
    }
    ended(asked, body, None, stanzas, begun).await
}

async fn begin(asked: &Asked<'_>, stanza: &Stanza<'_>) -> Result<Begun, Refusal> {
    let composer = asked.asker.composer(&asked.redfish.api);
    let (by, how) = (asked.asker.account.as_str(), asked.how_for(stanza.id)?);
    if stanza.kind == "DecomposeSystem" {
        let change = asked
            .released(composing::linked_system(stanza.request)?, &how)
            .await?;
        return Ok(Begun {
            change,
            composes: false,
        });
    }
    let change = match wishes::blocks(stanza.request) {
        Some(blocks) => {
            let (gpus, host) = asked.named(blocks)?;
            composer
                .attach_for(&gpus, &host, &Purpose::labelled(label(stanza)), by, &how)
                .await?
        }
        None => composer.compose(asked.wanted(stanza.request)?, by, &how).await?,
    };
    Ok(Begun::composes(change))
}

/// Applies what was reserved before; a manifest beside it must be the one that was.
async fn apply_reserved(
    asked: &Asked<'_>,
    body: &Value,
    id: &str,
    stanzas: &[Stanza<'_>],
) -> Result<Response, Refusal> {
    let composer = asked.asker.composer(&asked.redfish.api);
    let reservation = own(asked, id).await?;
    is_what_was_reserved(stanzas, &reservation)?;
    let parts = &reservation.parts;
    // Reservations of earlier versions store no manifest, only the parts.
    let requests: Vec<Value> = parts.iter().map(|part| would_be(asked, part)).collect();
    let of_parts = parts.iter().zip(&requests).map(|(part, request)| Stanza {
        id: &part.stanza,
        kind: "ComposeSystem",
        request,
    });
    let reserved: Vec<Stanza<'_>> = match &reservation.asked {
        Some(kept) => kept_stanzas(kept),
        None => of_parts.collect(),
    };
    let mut begun = Vec::new();
    for stanza in &reserved {
        let one = match parts.iter().find(|part| part.stanza == stanza.id) {
            Some(part) => {
                let (how, by) = (asked.how_for(stanza.id)?, &asked.asker.account);
                let composed = composer.compose_reserved(id, stanza.id, by, &how).await;
                let composed = composed.map(Begun::composes).map_err(Refusal::from);
                // What another request has composed already stops nothing.
                (composed, part.composed)
            }
            None => {
                let begun = begin(asked, stanza).await;
                // Nor does a system that is gone: it was there when this was reserved, and is decomposed already.
                let gone = begun
                    .as_ref()
                    .is_err_and(|refusal| refusal.status == StatusCode::NOT_FOUND);
                (begun, gone)
            }
        };
        let stops = matches!(one, (Err(_), false));
        begun.push(one.0);
        if stops {
            break;
        }
    }
    ended(asked, body, Some(id), &reserved, begun).await
}

/// A reservation of the asker; an administrator may use those of others.
pub(super) async fn own(asked: &Asked<'_>, id: &str) -> Result<Reservation, Refusal> {
    let found = asked.asker.composer(&asked.redfish.api).reservation(id).await?;
    let is_own = found.is_of(&asked.asker.account, &asked.asker.version);
    match is_own || asked.asker.role.has(Privilege::ConfigureManager) {
        true => Ok(found),
        false => Err(Refusal::forbidden(&format!(
            "Reservation {id} is {}'s.",
            found.by
        ))),
    }
}

/// Waits a while for all that was begun, and says what came of each. Where nothing could be begun it says why.
async fn ended(
    asked: &Asked<'_>,
    body: &Value,
    reservation: Option<&str>,
    stanzas: &[Stanza<'_>],
    mut begun: Vec<Result<Begun, Refusal>>,
) -> Result<Response, Refusal> {
    if begun.iter().all(Result::is_err)
        && let Some(Err(why)) = begun.pop()
    {
        return Err(why);
    }
    let until = Instant::now() + SOON;
    let (mut responses, mut task) = (Vec::new(), None);
    for one in begun {
        responses.push(match one {
            Err(refusal) => refusal.into_json(),
            Ok(begun) => match came_of(asked, &begun, until).await? {
                Came::Response(response) => response,
                Came::Task(at, response) => {
                    task.get_or_insert(at);
                    response
                }
            },
        });
    }
    let answer = answer(body, reservation, stanzas, responses);
    Ok(match task {
        None => answer.into_response(),
        Some(at) => {
            let mut response = (StatusCode::ACCEPTED, answer).into_response();
            super::put(response.headers_mut(), header::LOCATION, &at);
            super::put(response.headers_mut(), header::RETRY_AFTER, "2");
            response
        }
    })
}

enum Came {
    Response(Value),
    /// It goes on, as this task.
    Task(String, Value),
}

async fn came_of(asked: &Asked<'_>, begun: &Begun, until: Instant) -> Result<Came, Refusal> {
    let composer = asked.asker.composer(&asked.redfish.api);
    let Some(operation) = begun.change.operation.clone() else {
        return Ok(Came::Response(json!({})));
    };
    let left = until.saturating_duration_since(Instant::now());
    let operation = match composer.wait(&operation.id, left).await {
        Ok(operation) => operation,
        Err(ServiceError {
            code: ErrorCode::Timeout,
            ..
        }) => operation,
        Err(error) => return Err(error.into()),
    };
    let name = super::names::plain(operation.id.as_str());
    let task = uri::task(&name);
    match operation.state {
        OperationState::Completed if begun.composes => {
            let pool = asked.redfish.indexed.pool(&composer).await?;
            let made = begun
                .change
                .plan
                .composes
                .iter()
                .find_map(|one| pool.composed(&one.id));
            let system = made.and_then(|name| systems::one(&pool, name));
            let system = system.map(|system| shown(&system)).transpose()?;
            Ok(Came::Response(system.unwrap_or_default()))
        }
        OperationState::Completed => Ok(Came::Response(json!({}))),
        OperationState::RolledBack | OperationState::Cancelled | OperationState::Failed => {
            let why = operation
                .error()
                .unwrap_or_else(|| "it came to nothing".to_owned());
            let text = format!("It was not done, and everything is as it was before: {why}");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            let next = format!("{task} says more.");
            Ok(Came::Response(
                Refusal::new(status, "OperationFailed", &[], text, &next).into_json(),
            ))
        }
        _ => Ok(Came::Task(
            uri::monitor(&name),
            shown(&tasks::one(&name, &operation))?,
        )),
    }
}

/// DELETE of a reservation.
pub(crate) async fn end(asked: &Asked<'_>, id: &str) -> Result<Response, Refusal> {
    let reservation = own(asked, id).await?;
    asked
        .redfish
        .api
        .composer
        .end_reservation(&reservation.id)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
