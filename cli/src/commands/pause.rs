//! `pause` and `resume`: stopping what changes hardware, and letting it go on.

use super::{Outcome, queue, schedule};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs, Detached};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::{Output, human::counted, say};
use crate::tables;
use poolwright_executor::Operation;
use poolwright_model::id::{ControlEndpointId, ScheduleId};
use poolwright_service::{Pause, Paused};
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE)]
pub struct PauseArgs {
    #[command(flatten)]
    what: WhatArgs,
    /// Why; whoever waits is told
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const PAUSE: &str = "\
Examples:
  poolwright pause --all --reason \"the rack is moved\"
  poolwright pause --automation
  poolwright pause --endpoint box-1 --reason \"new firmware\"
  poolwright pause --schedule nights --yes

Nothing more is sent from then on, also after a restart; what is on its way is answered and read back. Operations
wait where they are, and new ones are refused (exit code 5), but for those of operators where automation alone is
paused. `poolwright get pauses` shows what is paused.";

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME)]
pub struct ResumeArgs {
    #[command(flatten)]
    what: WhatArgs,
    /// Discard the damaged document, which can't be repaired; make a backup first. The record of a GPU and a claim are
    /// written again; the GPUs of a composition are foreign until `poolwright endpoint adopt`
    #[arg(long, requires = "damaged")]
    discard: bool,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const RESUME: &str = "\
Examples:
  poolwright resume --all
  poolwright resume --endpoint box-1
  poolwright resume --restored
  poolwright resume --damaged composition/web-9a0138-1
  poolwright resume --damaged composition/web-9a0138-1 --discard

It takes back the pause of that name and no other: an endpoint that was paused by itself stays so after --all.
With --damaged the document is written as it was before one of its bits flipped. One that can't be repaired stays as
it is, and the error has the next steps.";

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WhatArgs {
    /// Every change of hardware, whoever wants it
    #[arg(long)]
    all: bool,
    /// What runs by itself; what an operator asks for is done
    #[arg(long)]
    automation: bool,
    /// What the manager stopped itself because its store came from a backup (resume only): accepts what
    /// `poolwright diff` shows
    #[arg(long)]
    restored: bool,
    /// A damaged document, which pauses every change of hardware (resume only): repairs one flipped bit
    #[arg(long, value_name = "KIND/ID", value_parser = document)]
    damaged: Option<String>,
    /// Every change at one management service
    #[arg(long, value_name = "NAME")]
    endpoint: Option<ControlEndpointId>,
    /// One schedule, as `poolwright schedule pause` does
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleId>,
}

fn document(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => Ok(text.to_owned()),
        _ => Err("write it as KIND/ID, as poolwright doctor does".to_owned()),
    }
}

impl WhatArgs {
    fn what(self) -> Paused {
        if let Some(document) = self.damaged {
            return Paused::Damaged(document);
        }
        match (self.schedule, self.endpoint) {
            (Some(schedule), _) => Paused::Schedule(schedule),
            (None, Some(endpoint)) => Paused::Endpoint(endpoint),
            (None, None) if self.restored => Paused::Restored,
            (None, None) if self.automation => Paused::Automation,
            (None, None) => Paused::All,
        }
    }
}

pub async fn pause(args: PauseArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let what = args.what.what();
    let body = json!({ "what": what, "reason": args.reason });
    switch(&api, "pause", (&what, args.detach), &body, output).await
}

pub async fn resume(args: ResumeArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let what = args.what.what();
    let body = match args.discard {
        true => json!({ "what": what, "discard": true }),
        false => json!({ "what": what }),
    };
    let resumed = switch(&api, "resume", (&what, args.detach), &body, output).await?;
    if let Paused::Damaged(document) = what {
        say(&match args.discard {
            true => format!("{document} was discarded"),
            false => format!("{document} is recovered"),
        });
    }
    Ok(resumed)
}

/// Shows and confirms the GPUs that are detached once this pause is over: by the operations that it holds, and by the
/// schedules and jobs that it keeps from beginning one.
async fn check_resume(
    api: &Api,
    what: &Paused,
    discards: bool,
    detach: ConfirmDetachArgs,
) -> Result<(), Failure> {
    let open: Vec<Operation> = api.get_where(&["operations"], &[("unfinished", "true")]).await?;
    let (action, ask) = match what {
        Paused::Damaged(document) if discards => (format!("discard {document}"), Ask::Always),
        // The steps of an operation that can't be read are unknown.
        Paused::Damaged(document) if is_of_operation(document, &open) => {
            (format!("resume {what}"), Ask::Always)
        }
        _ => (format!("resume {what}"), Ask::IfDetached),
    };
    let pauses: Vec<Pause> = api.get(&["pauses"]).await?;
    // There is none if a damaged document pauses nothing.
    let pause = pauses.iter().find(|pause| pause.what == *what);
    let held = open.iter().filter(|operation| {
        let endpoints = operation.endpoints();
        let holds = |pause: &Pause| {
            endpoints
                .iter()
                .any(|endpoint| pause.holds(operation.kind, endpoint))
        };
        pause.is_some_and(holds)
    });
    let mut detached = held
        .map(Detached::by_going_on)
        .fold(Detached::default(), Detached::and);
    if pause.is_some() {
        let mut demands = schedule::detached_when_followed(api).await?;
        demands.extend(queue::may_stop_for_waiting(api).await?);
        let steps = open.iter().flat_map(|operation| &operation.steps);
        let in_hand = steps
            .filter_map(|record| record.step.composition.clone())
            .collect();
        detached = detached.and(Detached::by_demands(api, &demands, &in_hand).await?);
    }
    detach.check(api, &detached, &action, ask).await
}

/// Whether it belongs to an operation that goes on then. Plan and journal are kept longer than their operation runs.
fn is_of_operation(document: &str, open: &[Operation]) -> bool {
    let kept = document
        .strip_prefix("plan/")
        .or_else(|| document.strip_prefix("journal/"));
    document.starts_with("operation/") || open.iter().any(|operation| kept == Some(operation.id.as_str()))
}

/// Shows all that is paused then.
async fn switch(
    api: &Api,
    verb: &str,
    (what, detach): (&Paused, ConfirmDetachArgs),
    body: &serde_json::Value,
    output: Output,
) -> Outcome {
    let confirmed = match what {
        Paused::Schedule(id) => schedule::check_switch(api, id, verb == "pause", detach).await,
        // No other pause detaches GPUs.
        _ if verb == "pause" => Ok(verb),
        _ => {
            let discards = body["discard"] == true;
            check_resume(api, what, discards, detach).await.map(|()| verb)
        }
    };
    let asked = match confirmed {
        Ok(verb) => api.post(&[verb], body).await,
        Err(failure) => Err(failure),
    };
    let paused: Vec<Pause> = match asked {
        Ok(paused) => paused,
        Err(failure) => {
            let named = match what {
                Paused::Endpoint(endpoint) if verb == "pause" => ("endpoints", endpoint.as_str()),
                Paused::Schedule(schedule) if verb == "pause" => ("schedules", schedule.as_str()),
                _ => return Err(failure),
            };
            return Err(names::suggest(api, failure, &[named]).await);
        }
    };
    output.show(&paused, &tables::pauses(&paused))?;
    say(&match paused.len() {
        0 => "nothing is paused any more".to_owned(),
        count => counted(count, "pause"),
    });
    Ok(ExitCode::Ok)
}
