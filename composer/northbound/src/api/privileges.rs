//! What each request below `/api/v1` needs, as a table that is both enforced and served: the OpenAPI document says it of
//! each operation. Who enrols an agent shows a token, and needs no account.

use super::agents::ENROLMENT;
use super::simulations::SIMULATIONS;
use super::size::SIZE;
use crate::auth::Reach::{self, Everywhere, Scoped};
use axum::http::Method;
use poolwright_service::accounts::Privilege::{
    self, ApplyPlans, ConfigureComponents, ConfigureManager, ConfigureUsers, Login, ReadAudit,
};

/// What reading and changing a place needs, and how far a privilege must reach that changes it.
struct Mapping {
    pattern: &'static str,
    read: Privilege,
    change: Privilege,
    reach: Reach,
}

const fn changed(pattern: &'static str, change: Privilege, reach: Reach) -> Mapping {
    Mapping {
        pattern,
        read: Login,
        change,
        reach,
    }
}

const fn all(pattern: &'static str, privilege: Privilege) -> Mapping {
    Mapping {
        read: privilege,
        ..changed(pattern, privilege, Everywhere)
    }
}

/// Those that are not as [`OTHERS`]. What is [`Scoped`] asks by [`crate::auth::Asker::composer`]; nothing else is let
/// through by a role in a scope.
const MAPPINGS: &[Mapping] = &[
    all("/accounts", ConfigureUsers),
    all("/accounts/{id}", ConfigureUsers),
    all("/audit", ReadAudit),
    // What may still let somebody in.
    all("/agent-tokens", ConfigureManager),
    changed("/plan", ApplyPlans, Scoped),
    changed("/apply", ApplyPlans, Scoped),
    changed("/compose", ConfigureComponents, Scoped),
    changed("/release", ConfigureComponents, Scoped),
    changed("/attach", ConfigureComponents, Scoped),
    changed("/detach", ConfigureComponents, Scoped),
    changed("/move", ConfigureComponents, Scoped),
    changed("/demands", ConfigureComponents, Scoped),
    changed("/demands/{id}", ConfigureComponents, Scoped),
    changed("/demands/{id}/done", ConfigureComponents, Scoped),
    changed("/declare", ConfigureComponents, Scoped),
    changed("/schedules", ConfigureComponents, Scoped),
    changed("/schedules/{id}", ConfigureComponents, Scoped),
    changed("/schedules/{id}/pause", ConfigureComponents, Scoped),
    changed("/schedules/{id}/resume", ConfigureComponents, Scoped),
    changed("/schedules/{id}/run", ConfigureComponents, Scoped),
    changed("/operations/{id}/cancel", ConfigureComponents, Scoped),
    changed("/operations/{id}/undo", ConfigureComponents, Scoped),
    changed("/pause", ConfigureComponents, Scoped),
    changed("/resume", ConfigureComponents, Scoped),
    // Questions that need a body.
    all(SIZE, Login),
    all(SIMULATIONS, Login),
    // What nobody can tell the scope of.
    changed("/operations/{id}/resolve", ConfigureComponents, Everywhere),
    changed("/discover", ConfigureComponents, Everywhere),
    changed("/gpus/{id}/locate", ConfigureComponents, Everywhere),
    changed("/gpus/{id}/quarantine", ConfigureComponents, Everywhere),
    changed("/gpus/{id}/replaced", ConfigureComponents, Everywhere),
    changed("/gpus/{id}/return", ConfigureComponents, Everywhere),
    changed("/hosts/{id}/close", ConfigureComponents, Everywhere),
    changed("/hosts/{id}/open", ConfigureComponents, Everywhere),
];

const OTHERS: Mapping = changed("", ConfigureManager, Everywhere);

/// The privilege that a request needs, and how far it must reach.
pub(crate) fn needed(method: &Method, pattern: &str) -> (Privilege, Reach) {
    let found = MAPPINGS.iter().find(|mapping| mapping.pattern == pattern);
    let mapping = found.unwrap_or(&OTHERS);
    match *method {
        Method::GET | Method::HEAD => (mapping.read, Everywhere),
        _ => (mapping.change, mapping.reach),
    }
}

/// A question that is long enough to have a body, and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Size,
    Simulation,
}

/// What a request only asks; `None`: it does more, or has no body.
pub(crate) fn only_asks(method: &Method, pattern: &str) -> Option<Asks> {
    match pattern {
        SIZE if *method == Method::POST => Some(Asks::Size),
        SIMULATIONS if *method == Method::POST => Some(Asks::Simulation),
        _ => None,
    }
}

/// Whether a request is let in by what it shows itself.
pub(crate) fn is_enrolment(method: &Method, pattern: &str) -> bool {
    *method == Method::POST && pattern == ENROLMENT
}
