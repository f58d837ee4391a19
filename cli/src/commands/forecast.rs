//! `forecast`: how many GPUs will be wanted, and how often such forecasts were right: by a manager from what it noted, or
//! from a file, which needs no manager.

use super::Outcome;
use super::number::within;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{duration, wrapped};
use crate::output::{Cell, Output, Table, column, say, width_of_messages};
use jiff::Timestamp;
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_planner::forecast::{Basis, Forecast, Horizon, forecast};
use poolwright_service::NO_FORECAST_YET;
use poolwright_simulator::demand_series::{ALL, Planned, Recorded, Tenant};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ForecastArgs {
    /// In place of what the manager noted: recorded demand, as CSV, plain or gzipped: time, tenant, gpu_type, gpus; or recorded jobs, as simulate reads them
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Only this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only GPUs of this kind
    #[arg(long, value_name = "KIND", conflicts_with = "by_kind")]
    kind: Option<String>,
    /// Each kind of GPU by itself, too
    #[arg(long)]
    by_kind: bool,
    /// How many hours ahead, with commas between them
    #[arg(long, value_name = "HOURS", value_delimiter = ',', default_value = "1,2,4,8,12,24", value_parser = within::<u32>(1, 168))]
    ahead: Vec<u32>,
    /// Take the run times of recorded jobs for known from their beginning
    #[arg(long, requires = "from")]
    known_ends: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright forecast
  poolwright forecast --by-kind
  poolwright forecast --from demand.csv
  poolwright forecast --from jobs.csv.gz --tenant research --ahead 1,6,24 -o json

p50 is the middle; p90 suffices in nine of ten cases, by how far off the latest forecasts were. COVERED is the share of the \
last ten days' hours at which p90, as it would have been said then, sufficed; OVER the GPUs that it had too many, and WAPE \
how far off p50 was, both by what was wanted. LAST COVERED, LAST OVER and LAST WAPE are the same of the last value with the \
quantile of its errors. ENDS are \
GPUs of jobs that run and are known to end by then. BY says on what the forecast rests; docs/PLANNING.md says what each is.

Without a time zone, times are in UTC. Samples hold until the tenant's next.";

const HOUR_S: i64 = 3_600;
/// Tenants that are shown where none is named.
const MOST_TENANTS: usize = 20;

#[derive(Serialize)]
struct Answer {
    tenants: Vec<OfTenant>,
}

#[derive(Serialize, Deserialize)]
struct OfTenant {
    tenant: String,
    /// Only GPUs of this kind; without it, of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Since when the manager has noted what is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// GPUs wanted and held now, where the manager was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<f64>,
    /// GPUs that are attached and idle for what is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<u32>,
    #[serde(flatten)]
    forecast: Forecast,
}

pub async fn run(args: ForecastArgs, output: Output) -> Outcome {
    let tenants = match &args.from {
        Some(file) => of_file(&args, file)?,
        None => match of_manager(&args).await {
            // Of a manager that is new nothing is wrong.
            Err(early) if early.message.starts_with(NO_FORECAST_YET) => {
                let early = format!("{}; {}", early.message, early.hint.unwrap_or_default());
                say(&wrapped(&early, width_of_messages()));
                Vec::new()
            }
            found => found?,
        },
    };
    let answer = Answer { tenants };
    output.show(&answer, &table(&answer.tenants))?;
    Ok(ExitCode::Ok)
}

async fn of_manager(args: &ForecastArgs) -> Result<Vec<OfTenant>, Failure> {
    let ahead: Vec<String> = args.ahead.iter().map(ToString::to_string).collect();
    let ahead = ahead.join(",");
    let mut query = vec![("ahead", ahead.as_str())];
    query.extend(args.tenant.as_deref().map(|tenant| ("tenant", tenant)));
    query.extend(args.kind.as_deref().map(|kind| ("kind", kind)));
    query.extend(args.by_kind.then_some(("by_kind", "true")));
    Api::new(&args.manager)?.get_where(&["forecast"], &query).await
}

fn of_file(args: &ForecastArgs, file: &Path) -> Result<Vec<OfTenant>, Failure> {
    let open = File::open(file).map_err(|error| Failure::file(file, "read", &error))?;
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let recorded = Recorded::read(open).map_err(|error| wrong(&error))?;
    let planned = match args.known_ends {
        true => Planned::Known,
        false => Planned::Unknown,
    };
    let by_kind = args.by_kind || args.kind.is_some();
    let mut tenants = recorded
        .tenants(HOUR_S, planned, by_kind)
        .map_err(|error| wrong(&error))?;
    if let Some(kind) = &args.kind {
        let kinds: Vec<String> = tenants.iter().filter_map(|tenant| tenant.kind.clone()).collect();
        tenants.retain(|tenant| tenant.kind.as_ref() == Some(kind));
        if tenants.is_empty() {
            return Err(not_there("kind", kind, kinds.iter().map(String::as_str)));
        }
    }
    let mut ahead: Vec<usize> = args.ahead.iter().map(|hours| *hours as usize).collect();
    ahead.sort_unstable();
    ahead.dedup();
    let forecasts = chosen(tenants, args.tenant.as_deref())?
        .into_iter()
        .map(|tenant| OfTenant {
            forecast: forecast(&tenant.history, &ahead),
            tenant: tenant.name,
            kind: tenant.kind,
            since: None,
            wanted: None,
            held: None,
            kept: None,
        });
    Ok(forecasts.collect())
}

fn chosen(mut tenants: Vec<Tenant>, name: Option<&str>) -> Result<Vec<Tenant>, Failure> {
    if let Some(name) = name {
        let known: Vec<String> = tenants.iter().map(|tenant| tenant.name.clone()).collect();
        tenants.retain(|tenant| tenant.name == name);
        if !tenants.is_empty() {
            return Ok(tenants);
        }
        if known.iter().all(|known| known == ALL) {
            let message = format!("no tenant {name} in the file: it names none");
            let hint = "leave --tenant out: what all wanted together is shown";
            return Err(Failure::new(ExitCode::NotFound, message).with_hint(hint));
        }
        return Err(not_there("tenant", name, known.iter().map(String::as_str)));
    }
    let mut names: Vec<String> = tenants.iter().map(|tenant| tenant.name.clone()).collect();
    names.dedup();
    if names.len() > MOST_TENANTS + 1 {
        let left = names.split_off(MOST_TENANTS + 1).len();
        say(&format!(
            "{left} smaller tenants are left out: name one with --tenant"
        ));
    }
    tenants.retain(|tenant| names.contains(&tenant.name));
    Ok(tenants)
}

fn not_there<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let hint = did_you_mean(&nearest(name, known));
    let message = format!("no {what} {name} in the file");
    Failure::new(ExitCode::NotFound, message)
        .with_hint(hint.unwrap_or_else(|| format!("without --{what} all are shown")))
}

fn table(tenants: &[OfTenant]) -> Table {
    let mut table = Table::new([
        column("TENANT"),
        column("KIND").if_any(),
        column("AHEAD").named("ahead_s"),
        column("P50"),
        column("P90"),
        column("ENDS").if_any().goes(3),
        column("COVERED"),
        column("OVER"),
        column("WAPE"),
        column("LAST COVERED").goes(2),
        column("LAST OVER").goes(2),
        column("LAST WAPE").goes(2),
        column("BY").goes(1),
        column("KEPT").if_any().goes(4),
    ]);
    for tenant in tenants {
        for horizon in &tenant.forecast.horizons {
            table.row(row(tenant, horizon));
        }
    }
    table
}

fn row(tenant: &OfTenant, horizon: &Horizon) -> [Cell; 14] {
    let share = |share: Option<f64>| match share {
        Some(share) => Cell::both(format!("{:.1}%", 100.0 * share), share),
        None => Cell::nothing(),
    };
    let gpus = |gpus: f64| Cell::both(format!("{gpus:.1}"), gpus);
    let (ours, last) = (
        horizon.measured.map(|measured| measured.ours),
        horizon.measured.map(|measured| measured.last_value),
    );
    [
        Cell::text(&tenant.tenant),
        Cell::maybe(tenant.kind.as_ref()),
        Cell::both(duration(horizon.in_s as f64), horizon.in_s),
        gpus(horizon.p50),
        gpus(horizon.p90),
        match horizon.ends > 0.0 {
            true => gpus(horizon.ends),
            false => Cell::nothing(),
        },
        share(ours.map(|ours| ours.coverage)),
        share(ours.map(|ours| ours.over)),
        share(ours.map(|ours| ours.wape)),
        share(last.map(|last| last.coverage)),
        share(last.map(|last| last.over)),
        share(last.map(|last| last.wape)),
        Cell::text(basis(&horizon.basis)),
        Cell::maybe(tenant.kept.filter(|kept| *kept > 0)),
    ]
}

fn basis(basis: &Basis) -> String {
    match basis {
        Basis::Methods { methods } => methods.join(", "),
        Basis::KnownEnds => "last value less known ends".to_owned(),
        Basis::LastValue => "last value".to_owned(),
        Basis::ShortPast => "last value, short past".to_owned(),
    }
}
