//! `forecast`: how many GPUs will be wanted, and how often such forecasts were right. From a file; needs no manager.

use super::Outcome;
use super::number::within;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::duration;
use crate::output::{Cell, Output, Table, column, say};
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_planner::forecast::{Basis, Forecast, Horizon, forecast};
use poolwright_simulator::demand_series::{Planned, Recorded, Tenant};
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ForecastArgs {
    /// Recorded demand, as CSV, plain or gzipped: time, tenant, gpus; or recorded jobs, as simulate reads them
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Only this tenant; may be given several times
    #[arg(long, value_name = "NAME")]
    tenant: Vec<String>,
    /// How many hours ahead, with commas between them
    #[arg(long, value_name = "HOURS", value_delimiter = ',', default_value = "1,2,4,8,12,24", value_parser = within::<u32>(1, 168))]
    ahead: Vec<u32>,
    /// Take the run times of recorded jobs for known from their beginning
    #[arg(long)]
    known_ends: bool,
}

const EXAMPLES: &str = "\
Examples:
  poolwright forecast --from demand.csv
  poolwright forecast --from jobs.csv.gz --tenant research --ahead 1,6,24 -o json

p50 is the middle; p90 suffices in nine of ten cases, by how far off the latest forecasts were. COVERED is the share of the \
last ten days' hours at which p90, as it would have been said then, sufficed; OVER the GPUs that it had too many, and WAPE \
how far off p50 was, both by what was wanted. Under LAST the same of the last value with the quantile of its errors. BY says \
on what the forecast rests; docs/PLANNING.md says what each is.

Without a time zone, times are in UTC. Samples hold until the tenant's next.";

const HOUR_S: i64 = 3_600;
/// Tenants that are shown where none is named.
const MOST_TENANTS: usize = 20;

#[derive(Serialize)]
struct Answer {
    tenants: Vec<OfTenant>,
}

#[derive(Serialize)]
struct OfTenant {
    tenant: String,
    gpu_hours: f64,
    #[serde(flatten)]
    forecast: Forecast,
}

pub fn run(args: &ForecastArgs, output: Output) -> Outcome {
    let file = &args.from;
    let open = File::open(file).map_err(|error| Failure::file(file, "read", &error))?;
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let recorded = Recorded::read(open).map_err(|error| wrong(&error))?;
    let planned = match args.known_ends {
        true => Planned::Known,
        false => Planned::Unknown,
    };
    let tenants = recorded.tenants(HOUR_S, planned).map_err(|error| wrong(&error))?;
    let mut ahead: Vec<usize> = args.ahead.iter().map(|hours| *hours as usize).collect();
    ahead.sort_unstable();
    ahead.dedup();
    let answer = Answer {
        tenants: chosen(tenants, &args.tenant)?
            .into_iter()
            .map(|tenant| OfTenant {
                forecast: forecast(&tenant.history, &ahead),
                tenant: tenant.name,
                gpu_hours: tenant.gpu_hours,
            })
            .collect(),
    };
    output.show(&answer, &table(&answer.tenants))?;
    Ok(ExitCode::Ok)
}

fn chosen(tenants: Vec<Tenant>, names: &[String]) -> Result<Vec<Tenant>, Failure> {
    if names.is_empty() {
        let left = tenants.len().saturating_sub(MOST_TENANTS + 1);
        if left > 0 {
            say(&format!(
                "{left} smaller tenants are left out: name them with --tenant"
            ));
        }
        return Ok(tenants.into_iter().take(MOST_TENANTS + 1).collect());
    }
    for name in names {
        if !tenants.iter().any(|tenant| tenant.name == *name) {
            let known: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            let hint = did_you_mean(&nearest(name, known))
                .unwrap_or_else(|| "without --tenant all are shown".into());
            return Err(
                Failure::new(ExitCode::NotFound, format!("no tenant {name} in the file")).with_hint(hint),
            );
        }
    }
    let named = tenants.into_iter().filter(|tenant| names.contains(&tenant.name));
    Ok(named.collect())
}

fn table(tenants: &[OfTenant]) -> Table {
    let mut table = Table::new([
        column("TENANT"),
        column("AHEAD").named("ahead_s"),
        column("P50"),
        column("P90"),
        column("COVERED"),
        column("OVER"),
        column("WAPE"),
        column("LAST").named("last_covered"),
        column("OVER").named("last_over"),
        column("WAPE").named("last_wape"),
        column("BY").if_room(),
    ]);
    for tenant in tenants {
        for horizon in &tenant.forecast.horizons {
            table.row(row(&tenant.tenant, horizon));
        }
    }
    table
}

fn row(tenant: &str, horizon: &Horizon) -> [Cell; 11] {
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
        Cell::text(tenant),
        Cell::both(duration(horizon.in_s as f64), horizon.in_s),
        gpus(horizon.p50),
        gpus(horizon.p90),
        share(ours.map(|ours| ours.coverage)),
        share(ours.map(|ours| ours.over)),
        share(ours.map(|ours| ours.wape)),
        share(last.map(|last| last.coverage)),
        share(last.map(|last| last.over)),
        share(last.map(|last| last.wape)),
        Cell::text(basis(&horizon.basis)),
    ]
}

fn basis(basis: &Basis) -> String {
    match basis {
        Basis::Methods { methods } => {
            let names: Vec<String> = methods.iter().map(ToString::to_string).collect();
            names.join(", ")
        }
        Basis::LastValue => "last value".to_owned(),
        Basis::ShortPast => "last value, short past".to_owned(),
    }
}
