//! `queue`: the jobs that wait for their GPUs, and those that have them; and how a demand becomes one.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, human, say};
use crate::tables;
use jiff::SignedDuration;
use poolwright_model::id::{DemandId, TenantId};
use poolwright_service::Queue;
use poolwright_service::demand::{DemandRecord, DemandSpec};
use poolwright_service::hooks::HookName;
use poolwright_service::job::{Job, JobSpec};
use poolwright_service::spans::Span;
use poolwright_service::tenant::TenantStatus;
use poolwright_terminal::some_time;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct QueueArgs {
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright demand add train 70B --task lora --queue --runs-for 6h
  poolwright demand add sweep --gpus 4 --queue --may-stop --notice 10m --checkpoint save --grace 5m --alert page
  poolwright demand add urgent --gpus 8 --priority 50 --queue --preempts --yes
  poolwright queue
  poolwright demand done train

Those that wait stand in the order of their turns: the shorter and narrower before the longer and wider, for a while;
by each step of priority as if submitted an hour earlier; one that preempts before all of lower priority; and within what a
tenant is guaranteed before all others.";

/// How a demand waits for its GPUs.
#[derive(Debug, Clone, clap::Args)]
pub struct JobArgs {
    /// Wait in the queue until its GPUs can be had, and keep them until `demand done`
    #[arg(long, conflicts_with_all = ["phases", "floor"])]
    queue: bool,
    /// How long it is expected to run, such as 6h; without it as long as others like it did
    #[arg(long, value_name = "TIME", value_parser = some_time, requires = "queue")]
    runs_for: Option<Duration>,
    /// How long it may run: after that its GPUs are let go of, unless they are in use
    #[arg(long, value_name = "TIME", value_parser = some_time, requires = "queue")]
    at_most: Option<Duration>,
    /// It may be stopped, and waits again then, where a schedule, a tenant's guarantee or a job with --preempts wants its GPUs
    #[arg(long, requires = "queue")]
    may_stop: bool,
    /// Jobs of lower priority make way for it, if they may be stopped, and wait behind it
    #[arg(long, requires = "queue")]
    preempts: bool,
    /// It is told so long before it is stopped
    #[arg(long, value_name = "TIME", value_parser = some_time, requires = "queue")]
    notice: Option<Duration>,
    /// By this hook of the manager's own (serve --hooks)
    #[arg(long, value_name = "HOOK", requires = "notice")]
    notify: Option<HookName>,
    /// Hook that decides by its exit status: with 0 it may be stopped, with anything else not yet
    #[arg(long, value_name = "HOOK", requires = "queue")]
    checkpoint: Option<HookName>,
    /// The longest that one run of it may take; 60s if nothing is said
    #[arg(long, value_name = "TIME", requires = "checkpoint", value_parser = some_time)]
    checkpoint_limit: Option<Duration>,
    /// How long a checkpoint that did not succeed is tried again before --may-stop decides
    #[arg(long, value_name = "TIME", requires = "checkpoint", value_parser = some_time)]
    grace: Option<Duration>,
    /// Hook that is run once where it is going to make way too late
    #[arg(long, value_name = "HOOK", requires = "queue")]
    alert: Option<HookName>,
}

impl JobArgs {
    /// What is said of the job; `None` for a demand that does not wait in the queue.
    pub fn spec(&self) -> Option<JobSpec> {
        let span = |time: Option<Duration>| {
            time.map(|time| Span(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)))
        };
        self.queue.then(|| JobSpec {
            runs_for: span(self.runs_for),
            at_most: span(self.at_most),
            may_stop: self.may_stop,
            preempts: self.preempts,
            notice: span(self.notice),
            notify: self.notify.clone(),
            checkpoint: self.checkpoint.clone(),
            checkpoint_limit: span(self.checkpoint_limit),
            grace: span(self.grace),
            alert: self.alert.clone(),
        })
    }
}

/// The running jobs that may stop for new ones: for those that preempt, and within a tenant's guarantee.
pub async fn may_stop_others(api: &Api, submitted: &[DemandSpec]) -> Result<BTreeSet<DemandId>, Failure> {
    if submitted.iter().all(|spec| spec.queue.is_none()) {
        return Ok(BTreeSet::new());
    }
    let kept: Vec<DemandRecord> = api.get(&["demands"]).await?;
    let is_new = |spec: &&DemandSpec| {
        let known = kept.iter().find(|record| record.spec.id == spec.id);
        spec.queue.is_some() && known.is_none_or(|record| record.spec != **spec && !runs(record))
    };
    let new: Vec<&DemandSpec> = submitted.iter().filter(is_new).collect();
    stopped_by(api, &new, &kept).await
}

async fn stopped_by(
    api: &Api,
    new: &[&DemandSpec],
    kept: &[DemandRecord],
) -> Result<BTreeSet<DemandId>, Failure> {
    let mut stopped = preempted_by(new.iter().copied(), kept);
    let tenants: Vec<TenantStatus> = api.get(&["tenants"]).await?;
    let claims = tenants
        .iter()
        .filter(|status| status.tenant.guaranteed > status.holds);
    let claims: Vec<&TenantId> = claims.map(|status| &status.tenant.id).collect();
    for spec in new.iter().filter(|spec| claims.contains(&&spec.tenant)) {
        stopped.extend(reclaimed_for(&spec.tenant, kept));
    }
    Ok(stopped)
}

/// The running jobs that may stop for waiting ones.
pub async fn may_stop_for_waiting(api: &Api) -> Result<BTreeSet<DemandId>, Failure> {
    let kept: Vec<DemandRecord> = api.get(&["demands"]).await?;
    let waiting = kept
        .iter()
        .filter(|record| record.spec.queue.is_some() && !runs(record));
    let waiting: Vec<&DemandSpec> = waiting.map(|record| &record.spec).collect();
    stopped_by(api, &waiting, &kept).await
}

/// The running jobs of others that may stop for the waiting jobs of a tenant, if more is guaranteed to it.
pub async fn may_be_reclaimed(api: &Api, tenant: &TenantId) -> Result<BTreeSet<DemandId>, Failure> {
    let kept: Vec<DemandRecord> = api.get(&["demands"]).await?;
    let mut waiting = kept
        .iter()
        .filter(|record| record.spec.queue.is_some() && !runs(record));
    Ok(match waiting.any(|record| record.spec.tenant == *tenant) {
        true => reclaimed_for(tenant, &kept).collect(),
        false => BTreeSet::new(),
    })
}

fn reclaimed_for<'a>(tenant: &'a TenantId, kept: &'a [DemandRecord]) -> impl Iterator<Item = DemandId> + 'a {
    let of_others = kept
        .iter()
        .filter(move |record| record.spec.tenant != *tenant && may_stop(record));
    of_others.map(|record| record.spec.id.clone())
}

fn may_stop(record: &DemandRecord) -> bool {
    runs(record) && record.spec.queue.as_ref().is_some_and(JobSpec::makes_way)
}

fn preempts(spec: &DemandSpec) -> bool {
    spec.queue.as_ref().is_some_and(|job| job.preempts)
}

fn runs(record: &DemandRecord) -> bool {
    record.job.as_ref().is_some_and(Job::runs)
}

fn preempted_by<'a>(new: impl Iterator<Item = &'a DemandSpec>, kept: &[DemandRecord]) -> BTreeSet<DemandId> {
    let highest = new.filter(|spec| preempts(spec)).map(|spec| spec.priority).max();
    let is_lower = |record: &&DemandRecord| {
        may_stop(record) && highest.is_some_and(|highest| record.spec.priority < highest)
    };
    let lower = kept.iter().filter(is_lower);
    lower.map(|record| record.spec.id.clone()).collect()
}

pub async fn run(args: QueueArgs, output: Output) -> Outcome {
    let queue: Queue = Api::new(&args.manager)?.get(&["queue"]).await?;
    let table = tables::queue(&queue);
    output.show_as(&queue, &table, |width| {
        let mut lines = vec![table.render(width)];
        for job in &queue.waiting {
            lines.push(human::indented(
                &format!("{}: {}", job.demand, job.because),
                width,
            ));
        }
        lines.join("\n")
    })?;
    if let Some(paused) = &queue.paused {
        say(&format!("no job begins just now: {paused}"));
    }
    Ok(ExitCode::Ok)
}
