//! The control path, for tests that run the emulator as a program: faults and incidents while it runs. It has an
//! address of its own, so that the Redfish services show nothing that a real one would not.
//!
//! * `GET /emulator/state`: what has happened so far (the tally) and what is bound to what.
//! * `POST /emulator/faults`: one fault, in the form of a rack file, as JSON.
//! * `DELETE /emulator/faults`: no faults any more.
//! * `POST /emulator/incidents`: something just happens: `{"vanish": "box-1/gpu-3"}`,
//!   `{"reappear": "box-1/gpu-3"}`, `{"lose-bindings": "box-1"}`, `{"power-off": "host-1"}`,
//!   `{"power-on": "host-1"}`, `{"renumber": ["box-1/gpu-1", "box-1/gpu-2"]}`,
//!   `{"exchange": ["box-1/gpu-1", "box-1/gpu-2"]}`, `{"bind": ["box-1/gpu-3", "host-1/port-1"]}`, `{"unbind": "box-1/gpu-3"}`.

use super::reply::Reply;
use super::request;
use crate::access::{Access, Account};
use crate::emulation::Emulation;
use crate::fault::Fault;
use crate::resources::Problem;
use crate::state::HostPower;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Extracted};
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What the address is called in messages.
pub(super) const NAME: &str = "fault control";
pub(super) const FAULTS: &str = "/emulator/faults";
const INCIDENTS: &str = "/emulator/incidents";
const STATE: &str = "/emulator/state";

struct Control {
    emulation: Arc<Emulation>,
    access: Access,
}

/// Something that just happens.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Incident {
    Vanish(String),
    Reappear(String),
    LoseBindings(String),
    PowerOff(String),
    PowerOn(String),
    Bind(String, String),
    Unbind(String),
    Renumber(String, String),
    Exchange(String, String),
}

pub(super) fn router(emulation: Arc<Emulation>, account: Arc<Account>) -> Router {
    // Basic only: no sessions are ever opened here.
    let access = Access::new(account, 0, Duration::from_secs(30));
    Router::new()
        .fallback(answer)
        .with_state(Arc::new(Control { emulation, access }))
}

async fn answer(Extracted(control): Extracted<Arc<Control>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let now = control.emulation.clock().now();
    let reply = if request::authenticated(&parts.headers, &control.access, now) {
        control.reply(&parts.method, parts.uri.path(), body).await
    } else {
        Err(Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[]))
    };
    reply
        .unwrap_or_else(|problem| Reply::problem(&problem))
        .into_response()
}

impl Control {
    async fn reply(&self, method: &Method, path: &str, body: Body) -> Result<Reply, Problem> {
        match (method, path) {
            (&Method::GET, STATE) => Ok(Reply::json(StatusCode::OK, &self.truth())),
            (&Method::POST, FAULTS) => {
                let fault: Fault = read(request::body_of(body, true).await?)?;
                let added = self.emulation.add_fault(fault);
                added.map_err(|error| unknown(&error.name))?;
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            (&Method::DELETE, FAULTS) => {
                self.emulation.clear_faults();
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            (&Method::POST, INCIDENTS) => {
                let incident: Incident = read(request::body_of(body, true).await?)?;
                self.let_happen(&incident)
                    .map(|()| Reply::empty(StatusCode::NO_CONTENT))
            }
            _ => Err(Problem::not_found(path)),
        }
    }

    fn truth(&self) -> Value {
        self.emulation.with(|state, _| {
            let tally = state.tally();
            json!({
                "state": state.save(),
                "tally": {
                    "binds": tally.binds,
                    "unbinds": tally.unbinds,
                    "resets": tally.resets,
                    "double_binds_refused": tally.double_binds_refused,
                    "pulled_in_use": tally.pulled_in_use,
                    "resets_in_use": tally.resets_in_use,
                    "bound_dirty": tally.bound_dirty,
                },
            })
        })
    }

    fn let_happen(&self, incident: &Incident) -> Result<(), Problem> {
        let rack = self.emulation.rack();
        let gpu = |name: &String| rack.gpu_named(name).ok_or_else(|| unknown(name));
        let port = |name: &String| rack.port_named(name).ok_or_else(|| unknown(name));
        let host = |name: &String| rack.host_named(name).ok_or_else(|| unknown(name));
        self.emulation.with(|state, now| {
            match incident {
                Incident::Vanish(name) => state.vanish(gpu(name)?, now),
                Incident::Reappear(name) => state.reappear(gpu(name)?),
                Incident::LoseBindings(name) => {
                    state.lose_bindings(rack.box_named(name).ok_or_else(|| unknown(name))?, now);
                }
                Incident::PowerOff(name) => state.set_power(host(name)?, HostPower::Off, now),
                Incident::PowerOn(name) => state.set_power(host(name)?, HostPower::On, now),
                Incident::Bind(to_bind, to) => {
                    let bound = state.bind_by_others(gpu(to_bind)?, port(to)?, now);
                    bound.map_err(|refusal| Problem::from(&refusal))?;
                }
                Incident::Unbind(name) => state.unbind_by_others(gpu(name)?, now),
                Incident::Renumber(one, other) => state.renumber(gpu(one)?, gpu(other)?),
                Incident::Exchange(one, other) => state.exchange(gpu(one)?, gpu(other)?, now),
            }
            Ok(())
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(body: Value) -> Result<T, Problem> {
    serde_json::from_value(body)
        .map_err(|error| Problem::bad("UnrecognizedRequestBody", &[]).saying(error.to_string()))
}

fn unknown(name: &str) -> Problem {
    Problem::bad("PropertyValueError", &[name]).saying(format!("the rack has no {name}"))
}
