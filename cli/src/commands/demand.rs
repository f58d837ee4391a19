//! `demand`: what is wanted, to be served by the next plan that is applied.

use super::declare;
use super::queue::{self, JobArgs};
use super::wanted::{self, WantedArgs};
use super::{Outcome, removed};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::{Output, say};
use crate::tables;
use poolwright_model::id::DemandId;
use poolwright_service::Declaration;
use poolwright_service::demand::DemandRecord;
use std::collections::BTreeSet;

#[derive(Debug, clap::Args)]
pub struct DemandArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Keep a demand; `plan` and `apply` serve it
    #[command(
        after_help = "Examples:\n  poolwright demand add chat 70B --task infer --priority 10\n  \
        poolwright demand add batch --gpus 8 --kind h100-pcie-80gb\n  \
        poolwright demand add train 70B --task lora --queue --runs-for 6h --priority 5\n  \
        poolwright demand add pretrain --phases run.toml --start 2026-12-01T20:00:00Z\n  \
        poolwright plan --out plan.json && poolwright apply plan.json"
    )]
    Add(Box<AddArgs>),
    /// Delete a demand that holds no GPUs (else: `release`), or end a job that runs
    #[command(
        after_help = "Examples:\n  poolwright demand remove chat --yes\n  poolwright demand remove train --yes --max-detach 8"
    )]
    Remove(RemoveArgs),
    /// Say that a job of the queue is done: its GPUs are let go of
    #[command(after_help = "Example:\n  poolwright demand done train --yes")]
    Done(DoneArgs),
    /// List all demands
    #[command(after_help = "Example:\n  poolwright demand list -o json")]
    List(ManagerArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = wanted::required())]
struct AddArgs {
    /// Its name from now on
    #[arg(value_name = "NAME")]
    name: DemandId,
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    /// Where it fits nowhere: show every kind of GPU with its reason
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct DoneArgs {
    #[arg(value_name = "NAME")]
    name: DemandId,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[arg(value_name = "NAME")]
    name: DemandId,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: DemandArgs, output: Output) -> Outcome {
    match args.action {
        Action::Add(args) => {
            let args = *args;
            let mut spec = args.wanted.spec(args.name)?;
            spec.queue = args.job.spec();
            let api = Api::new(&args.manager)?;
            let preempted = queue::may_stop_others(&api, std::slice::from_ref(&spec)).await?;
            let what = format!(
                "submit {}, for which the jobs that hold these GPUs may stop",
                spec.id
            );
            args.detach
                .check_demands(&api, &preempted, &what, Ask::IfDetached)
                .await?;
            let kept = api.post(&["demands"], &spec).await;
            let record: DemandRecord = kept.map_err(|failure| failure.explained(args.explain))?;
            output.show(&record, &tables::demands(std::slice::from_ref(&record)))?;
            match record.course {
                _ if record.job.is_some() => say(
                    "it begins when its GPUs can be had, and keeps them until it is said to be done: poolwright queue",
                ),
                Some(course) => say(&format!(
                    "its phases get their GPUs by the clock, from {} to {}",
                    course.starts,
                    course.ends()
                )),
                None => say(
                    "it is served by the next plan that is applied: poolwright plan --out FILE, poolwright apply FILE",
                ),
            }
            // A job that no host could ever hold was refused; else it waits, as it is meant to.
            if record.job.is_none() {
                let demands = vec![spec];
                let schedules = Vec::new();
                return Ok(declare::report_unfit(&api, Declaration { demands, schedules }).await);
            }
        }
        Action::Remove(args) => {
            let api = Api::new(&args.manager)?;
            let what = format!("delete demand {}", args.name);
            let ends = match remove(&api, &args, &what).await {
                Ok(ends) => ends,
                Err(failure) => {
                    return Err(names::suggest(&api, failure, &[("demands", args.name.as_str())]).await);
                }
            };
            removed::show("demand", &args.name, output)?;
            if ends {
                say(LET_GO);
            }
        }
        Action::Done(args) => {
            let api = Api::new(&args.manager)?;
            let job = BTreeSet::from([args.name.clone()]);
            let what = format!("end job {}", args.name);
            args.detach
                .check_demands(&api, &job, &what, Ask::IfDetached)
                .await?;
            let path = ["demands", args.name.as_str(), "done"];
            let done: Result<DemandRecord, _> = api.post(&path, &serde_json::json!({})).await;
            let record = match done {
                Ok(record) => record,
                Err(failure) => {
                    return Err(names::suggest(&api, failure, &[("demands", args.name.as_str())]).await);
                }
            };
            output.show(&record, &tables::demands(std::slice::from_ref(&record)))?;
            say(LET_GO);
        }
        Action::List(manager) => {
            let demands: Vec<DemandRecord> = Api::new(&manager)?.get(&["demands"]).await?;
            output.show(&demands, &tables::demands(&demands))?;
        }
    }
    Ok(ExitCode::Ok)
}

const LET_GO: &str = "its GPUs are being released: poolwright queue";

/// Deletes a demand. Says whether it is a job that ran, whose GPUs are being released.
async fn remove(api: &Api, args: &RemoveArgs, what: &str) -> Result<bool, Failure> {
    let path = ["demands", args.name.as_str()];
    let record: DemandRecord = api.get(&path).await?;
    let ends = record.job.is_some_and(|job| job.runs());
    // The manager refuses to delete any other demand that holds GPUs.
    let ended = ends.then(|| args.name.clone()).into_iter().collect();
    args.detach.check_demands(api, &ended, what, Ask::Always).await?;
    api.delete(&path).await?;
    Ok(ends)
}
