//! Session timeouts and account lockout rules, as properties of the session service and the account service. A table
//! for each service lists its writable properties.

use super::message::Refusal;
use super::wire::matches_tag;
use super::{Redfish, accounts, body, sessions, shown, uri};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::schema::Type;
use poolwright_redfish_model::{AccountService, SessionService};
use poolwright_service::access::{AccessRules, SECONDS, WRONG_PASSWORDS};
use poolwright_service::{ErrorCode, ServiceError};
use serde_json::Value;
use std::ops::RangeInclusive;

/// How often a change is tried that others come in the way of.
const TRIES: usize = 8;

/// A property that may be set.
struct Setting {
    name: &'static str,
    range: RangeInclusive<u32>,
    of: fn(&mut AccessRules) -> &mut u32,
}

const FORGOTTEN: &str = "AccountLockoutCounterResetAfter";
const LOCKED: &str = "AccountLockoutDuration";

const OF_SESSIONS: &[Setting] = &[
    Setting {
        name: "SessionTimeout",
        range: SECONDS,
        of: |rules| &mut rules.idle_s,
    },
    Setting {
        name: "AbsoluteSessionTimeout",
        range: SECONDS,
        of: |rules| &mut rules.longest_s,
    },
];
const OF_ACCOUNTS: &[Setting] = &[
    Setting {
        name: "AccountLockoutThreshold",
        range: WRONG_PASSWORDS,
        of: |rules| &mut rules.wrong_passwords,
    },
    Setting {
        name: LOCKED,
        range: SECONDS,
        of: |rules| &mut rules.locked_s,
    },
    Setting {
        name: FORGOTTEN,
        range: SECONDS,
        of: |rules| &mut rules.forgotten_s,
    },
];

/// Which of the two services.
#[derive(Clone, Copy)]
pub(crate) enum Service {
    Sessions,
    Accounts,
}

impl Service {
    fn schema(self) -> &'static Type {
        match self {
            Self::Sessions => SessionService::SCHEMA,
            Self::Accounts => AccountService::SCHEMA,
        }
    }

    fn settings(self) -> &'static [Setting] {
        match self {
            Self::Sessions => OF_SESSIONS,
            Self::Accounts => OF_ACCOUNTS,
        }
    }

    fn place(self) -> String {
        uri::at(match self {
            Self::Sessions => "SessionService",
            Self::Accounts => "AccountService",
        })
    }

    fn shown(self, rules: &AccessRules) -> Result<Value, Refusal> {
        match self {
            Self::Sessions => shown(&sessions::service(rules)),
            Self::Accounts => shown(&accounts::service(rules)),
        }
    }
}

/// PATCH of a service.
pub(crate) async fn change(
    redfish: &Redfish,
    service: Service,
    headers: &HeaderMap,
    body: &Value,
) -> Result<Response, Refusal> {
    check(service, body)?;
    let sessions = &redfish.api.sessions;
    let mut tries = 1;
    loop {
        let kept = sessions.access().kept().await.map_err(ServiceError::from)?;
        if headers.contains_key(header::IF_MATCH) {
            let now = service.shown(&kept.rules)?;
            let tag = now["@odata.etag"].as_str().unwrap_or_default();
            if !matches_tag(headers, header::IF_MATCH, tag) {
                return Err(Refusal::changed_meanwhile(&service.place()));
            }
        }
        let rules = with(service, kept.rules, body)?;
        match sessions.set_rules(rules, &kept).await {
            Err(error) if error.code == ErrorCode::Stale && tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
            Ok(()) => return answer(service, &rules),
        }
    }
}

fn answer(service: Service, rules: &AccessRules) -> Result<Response, Refusal> {
    let shown = service.shown(rules)?;
    let mut headers = HeaderMap::new();
    let tag = shown["@odata.etag"].as_str().unwrap_or_default();
    super::put(&mut headers, header::ETAG, tag);
    Ok((headers, axum::Json(shown)).into_response())
}

/// All of a body is understood, and can be.
fn check(service: Service, body: &Value) -> Result<(), Refusal> {
    let settings = service.settings();
    let understood: Vec<&str> = settings.iter().map(|setting| setting.name).collect();
    let mut wrong = body::violations_of_update(service.schema(), &understood, body);
    // `misset` checks these: its ranges are narrower than the schema's, and its messages state them.
    wrong.retain(|wrong| !understood.contains(&wrong.path.trim_start_matches('/')));
    let mut refusals: Vec<Refusal> = match wrong.is_empty() {
        true => Vec::new(),
        false => vec![Refusal::violations(&wrong)],
    };
    refusals.extend(settings.iter().filter_map(|setting| misset(setting, body)));
    match Refusal::joined(refusals) {
        Some(refusal) => Err(refusal),
        None if settings.iter().all(|setting| body.get(setting.name).is_none()) => {
            Err(Refusal::nothing_to_do())
        }
        None => Ok(()),
    }
}

fn misset(setting: &Setting, body: &Value) -> Option<Refusal> {
    let Setting { name, range, .. } = setting;
    let value = body.get(name)?;
    if number(value).is_some_and(|number| range.contains(&number)) {
        return None;
    }
    let (least, most) = (range.start(), range.end());
    let (id, shown, text) = match value.is_number() {
        true => (
            "PropertyValueOutOfRange",
            value.to_string(),
            format!("{name} can't be {value}: it is a whole number from {least} to {most}."),
        ),
        false => (
            "PropertyValueTypeError",
            "…".to_owned(),
            format!("{name} is a number."),
        ),
    };
    let next = format!("Say a whole number from {least} to {most}.");
    let status = StatusCode::BAD_REQUEST;
    Some(Refusal::new(status, id, &[&shown, name], text, &next).related(name))
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| value.try_into().ok())
}

/// The rules with what a body says of them.
fn with(service: Service, mut rules: AccessRules, body: &Value) -> Result<AccessRules, Refusal> {
    for setting in service.settings() {
        if let Some(value) = body.get(setting.name).and_then(number) {
            *(setting.of)(&mut rules) = value;
        }
    }
    if rules.forgotten_s > rules.locked_s {
        let text = format!(
            "{FORGOTTEN} ({} s) can't be longer than {LOCKED} ({} s).",
            rules.forgotten_s, rules.locked_s
        );
        let (status, next) = (StatusCode::BAD_REQUEST, "Set both, or a shorter one.");
        let args = [FORGOTTEN, LOCKED];
        return Err(Refusal::new(status, "PropertyValueConflict", &args, text, next).related(FORGOTTEN));
    }
    Ok(rules)
}
