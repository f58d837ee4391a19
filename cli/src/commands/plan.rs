//! `plan` and `apply`: what would be changed and why, as a value that can be saved; and doing exactly that. Or,
//! without a manager, a plan over time for a problem in a file.

mod ahead;
mod drawn;
mod instance;
mod keys;
mod picture;
mod problem;
mod runs;

use super::change::{ChangeArgs, Guarded, PartialArgs, StaleArgs};
use super::{Outcome, declare};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::drifting;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::paused;
use crate::silence;
use crate::tables::plan_steps;
use poolwright_planner::{Plan, explain};
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = PLAN)]
pub struct PlanArgs {
    /// Save the plan in this file, for `poolwright apply`
    #[arg(long, value_name = "FILE", conflicts_with = "instance")]
    out: Option<PathBuf>,
    /// Say instead who will hold which GPUs when, for so long, as the calendar goes on
    #[arg(long, value_name = "TIME", value_parser = ahead::hours, conflicts_with_all = ["instance", "out"])]
    ahead: Option<u32>,
    #[command(flatten)]
    problem: problem::ProblemArgs,
    #[command(flatten)]
    instance: instance::InstanceArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

impl PlanArgs {
    /// Whether it has a time axis, and so a picture.
    pub fn is_over_time(&self) -> bool {
        self.instance.instance.is_some() || self.ahead.is_some()
    }
}

const PLAN: &str = "\
Examples:
  poolwright plan
  poolwright plan --out plan.json && poolwright apply plan.json
  poolwright plan -o csv                               its steps
  poolwright plan --ahead 24h                          who holds which GPUs when, as the calendar goes on
  poolwright plan --ahead 7d -o html                   a page of it: who runs where when, use and power over time
  poolwright plan --ahead 36h --problem week.json --solution manager.json
  poolwright plan --instance week.json --previous manager.json
  poolwright plan --instance week.json --time-limit 10s
  poolwright plan --instance week.json > solution.json
  poolwright plan --instance week.json -o html         a page: who runs where when, use and power over time
  poolwright plan --instance week.json --previous solution.json --time-limit 200ms

What can't be served is in the plan with the reason, and with what would help.

--problem writes the calendar as a problem over time, for --instance, with what costs what (--costs FILE for other prices
than the usual ones); --solution writes what the manager will do by itself as a solution of it, for --previous. What they
don't say is named.

--instance plans a problem over time and asks no manager: a file in the schema cps-1, or in
poolwright-horizon-1, which may also close hosts, limit tenants, have demands with parts, phases and priorities, and
say what the fabric between hosts and GPUs carries. On a terminal it prints who runs where when and what is attached where, 20
lines of each; sent to a file or another program it writes the solution as JSON, as with -o json (-o table writes all those
lines there). A first plan is found at once and
made better until the time is over. How far that gets depends on the machine, so a time limit may give another plan on
another day; --rounds instead of it gives the same plan for the same seed everywhere. No plan costs less than `bound`.";

#[derive(Debug, clap::Args)]
#[command(
    after_help = format!("{APPLY}\n{}", declare::HELP),
    override_usage = "poolwright apply [OPTIONS] <FILE>\n       poolwright apply [OPTIONS] -f <FILE>"
)]
pub struct ApplyArgs {
    /// Plan, as `poolwright plan --out FILE` saved it
    #[arg(value_name = "FILE", required_unless_present = "declared")]
    file: Option<PathBuf>,
    /// Instead of a plan: keep the demands and schedules that this file declares (TOML, YAML or JSON), all or nothing.
    /// What it does not name stays as it is
    #[arg(
        short = 'f',
        long = "file",
        value_name = "FILE",
        id = "declared",
        conflicts_with = "file"
    )]
    declared: Option<PathBuf>,
    /// Serve at once what is wanted then, by a plan that is made and applied
    #[arg(long, requires = "declared", conflicts_with_all = ["dry_run", "key"])]
    serve: bool,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    partial: PartialArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const APPLY: &str = "\
Examples:
  poolwright apply plan.json
  poolwright apply plan.json --dry-run                 its steps, if it still fits
  poolwright apply plan.json --yes --max-detach 4      without a question; refused if it detaches more GPUs
  poolwright apply plan.json --no-wait
  poolwright apply -f wanted.toml --dry-run            the difference, and whether it fits
  poolwright apply -f wanted.yaml --serve

Exit code 6 where the pool has changed since the plan was made: make a new one. Exit code 8 where not all that a file
declares fits: it is kept all the same.
";

pub async fn plan(args: PlanArgs, output: Output) -> Outcome {
    if let Some(file) = &args.instance.instance {
        return instance::run(file, &args.instance, output);
    }
    let api = Api::new(&args.manager)?;
    if let Some(hours) = args.ahead {
        problem::write(&api, hours, &args.problem).await?;
        return ahead::run(&api, hours, output).await;
    }
    let plan: Plan = api.post(&["plan"], &serde_json::json!({})).await?;
    if let Some(file) = &args.out {
        let text = serde_json::to_vec_pretty(&plan)
            .map_err(|error| Failure::new(ExitCode::Generic, error.to_string()))?;
        fs::write(file, text).map_err(|error| Failure::file(file, "written", &error))?;
        say(&format!(
            "saved in {}; do it with: poolwright apply {0}",
            file.display()
        ));
    }
    output.show_as(&plan, &plan_steps(&plan, None), |_| {
        let mut lines = explain(&plan);
        lines.push(plan.summary().to_string());
        if let [unplaced, ..] = plan.unplaced.as_slice() {
            lines.push(format!(
                "everything that was tried: poolwright why demand/{}",
                unplaced.demand
            ));
        }
        lines.join("\n")
    })?;
    silence::tell(&api).await;
    drifting::tell(&api).await;
    paused::tell(&api, &plan).await;
    Ok(ExitCode::Ok)
}

#[derive(Serialize)]
struct Apply<'a> {
    plan: &'a Plan,
}

/// Applies a plan, after a confirmation if it detaches GPUs.
pub(super) async fn carry_out(
    api: &Api,
    plan: &Plan,
    change: &ChangeArgs,
    (detach, stale, partial): (ConfirmDetachArgs, StaleArgs, PartialArgs),
    output: Output,
) -> Outcome {
    let guarded = Guarded {
        detach,
        what: format!("apply plan {}", plan.id),
        ask: Ask::IfDetached,
        plan: Some(plan),
    };
    let (apply, allowed) = (Apply { plan }, (stale, partial));
    change
        .make_guarded(api, &["apply"], &apply, allowed, &guarded, output)
        .await
}

pub async fn apply(args: ApplyArgs, output: Output) -> Outcome {
    if let Some(file) = &args.declared {
        if !args.serve && args.change.begins() {
            let message = "a file of demands and schedules begins no operation: it takes no --key, --deadline or --no-wait";
            return Err(Failure::usage(message).with_hint("with --serve the file begins one"));
        }
        let api = Api::new(&args.manager)?;
        let declared = declare::run(&api, file, args.change.is_dry_run(), args.detach).await?;
        return match args.serve {
            true => {
                let allowed = (args.detach, args.stale, args.partial);
                declare::serve(&api, &declared, &args.change, allowed, output).await
            }
            false => declare::show(&declared, output),
        };
    }
    let Some(file) = &args.file else {
        return Err(Failure::usage("no plan is given").with_hint("make one: poolwright plan --out FILE"));
    };
    let text = fs::read(file).map_err(|error| Failure::file(file, "read", &error))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(format!("{} is not a plan: {error}", file.display()))
            .with_hint("make one: poolwright plan --out FILE")
    })?;
    let api = Api::new(&args.manager)?;
    let allowed = (args.detach, args.stale, args.partial);
    carry_out(&api, &plan, &args.change, allowed, output).await
}
