//! `endpoint qualify`: binds, reads back and unbinds one spare GPU at one host, and takes the times. Shows
//! whether a machine can be driven before a manager is trusted with it.
//!
//! Only a GPU that is free is used, and it is free again at the end; where that can't be read back, the
//! report says what is held where, with the exit code for an unknown outcome. Who interrupts it gets the same.

mod pair;
mod trial;

use crate::access::{AccessArgs, read_listing};
use crate::commands::Outcome;
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, Table, say};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::wire_up::AnyConnector;
use futures_util::future::join_all;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use pair::choose;
use poolwright_collector::{CollectOptions, collect};
use poolwright_driver::Fabric;
use poolwright_executor::{Clock, Options, SystemClock};
use poolwright_model::driver_label::{DriverLabel, Standing};
use poolwright_model::id::{ControlEndpointId, GpuId, HostId};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use trial::{End, Timed, Trial};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct QualifyArgs {
    /// Address of a service: the fabric's manager, and the host's BMC if it is to confirm; may be repeated
    #[arg(long, value_name = "URL", required_unless_present = "endpoints")]
    endpoint: Vec<String>,
    /// List of services, as poolwright emulate writes it (endpoints.json)
    #[arg(long, value_name = "FILE")]
    endpoints: Option<PathBuf>,
    /// The GPU to use; without it the first that is free
    #[arg(long, value_name = "GPU")]
    gpu: Option<GpuId>,
    /// The host to use; without it the first that can be reached and has a free slot
    #[arg(long, value_name = "HOST")]
    host: Option<HostId>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright endpoint qualify --endpoints rack/endpoints.json --yes
  poolwright endpoint qualify --endpoint https://box-1 --endpoint https://host-1-bmc \\
      --username admin --password-file pw --ca ca.pem --gpu gpu-7f3a… --host host-1 --yes

Let no manager drive the machine meanwhile. Ctrl-C (and SIGTERM) undoes what was done. Exit code 0 only where every step was read back.";

/// What was tried, and how it went.
#[derive(Serialize)]
struct Report {
    gpu: GpuId,
    host: HostId,
    host_port: String,
    control: String,
    /// Who binds it, and what was known of driving it before this trial.
    service: DriverLabel,
    /// The day of the trial.
    on: Date,
    steps: Vec<Timed>,
    qualified: bool,
}

pub async fn run(args: QualifyArgs, output: Output) -> Outcome {
    let mut specs: Vec<EndpointSpec> = args
        .endpoint
        .iter()
        .map(|url| args.access.endpoint(None, url))
        .collect();
    if let Some(file) = &args.endpoints {
        specs.extend(read_listing(file, &args.access)?);
    }
    let connector = AnyConnector::default();
    let mut drivers: BTreeMap<ControlEndpointId, Connected> = BTreeMap::new();
    for spec in &specs {
        connector.check(spec)?;
    }
    let stop = Stop::heard();
    let mut ended = connect(&connector, &specs, &mut drivers, &stop).await;
    if ended.is_ok() {
        ended = qualify(&args, &drivers, output, &stop).await;
    }
    let goodbyes = drivers.values().map(|connected| connected.fabric.close());
    stop.goodbye(join_all(goodbyes)).await;
    ended
}

async fn connect(
    connector: &AnyConnector,
    specs: &[EndpointSpec],
    drivers: &mut BTreeMap<ControlEndpointId, Connected>,
    stop: &Stop,
) -> Outcome {
    for spec in specs {
        let connected = stop.or_soon(connector.connect(spec)).await??;
        drivers.insert(spec.id.clone(), connected);
    }
    Ok(ExitCode::Ok)
}

async fn qualify(
    args: &QualifyArgs,
    drivers: &BTreeMap<ControlEndpointId, Connected>,
    output: Output,
    stop: &Stop,
) -> Outcome {
    let fabrics: Vec<Arc<dyn Fabric>> = drivers
        .values()
        .map(|connected| connected.fabric.clone())
        .collect();
    let (now, options) = (SystemClock.now(), CollectOptions::default());
    let snapshot = stop.or(collect(&fabrics, None, now, options, &())).await?;
    let pair = choose(&snapshot, args.gpu.as_ref(), args.host.as_ref())?;
    args.confirm
        .confirm(&format!("bind {} to {} for a moment", pair.gpu.id, pair.host.id))?;
    // Where it is bound must be free again at the end; so must every other end that can be read.
    let others = pair.gpu.control.iter().filter(|at| **at != pair.unit_at);
    let ends: Vec<End> = std::iter::once(&pair.unit_at)
        .chain(others)
        .filter_map(|at| {
            let fabric = drivers.get(&at.endpoint)?.fabric.clone();
            Some(End {
                at: at.clone(),
                fabric,
            })
        })
        .collect();
    let Some(end) = ends.first().filter(|end| end.at == pair.unit_at) else {
        let message = format!("no endpoint was named that binds {}", pair.gpu.id);
        return Err(
            Failure::new(ExitCode::Generic, message).with_hint("name the fabric's manager with --endpoint")
        );
    };
    let bmc = pair.host.bmc.as_ref().and_then(|bmc| drivers.get(bmc));
    let options = Options::default();
    let mut trial = Trial {
        pair: &pair,
        end,
        ends: &ends,
        host_side: bmc.map(|bmc| bmc.host_side.clone()),
        options: &options,
        stop,
        may_hold: false,
        steps: Vec::new(),
        progress: Progress::spinner("qualifying"),
    };
    let went = tokio::select! {
        went = trial.run() => Some(went),
        () = stop.at_once() => None,
    };
    let went = went.unwrap_or_else(|| Err(trial.left_as_it_is()));
    let service = snapshot
        .endpoints
        .iter()
        .find(|seen| seen.id == pair.unit_at.endpoint)
        .map(|seen| seen.label.clone())
        .unwrap_or_default();
    let report = Report {
        gpu: pair.gpu.id.clone(),
        host: pair.host.id.clone(),
        host_port: pair.port.id.to_string(),
        control: pair.unit_at.style.to_string(),
        qualified: went.is_ok(),
        service,
        on: snapshot.taken_at.to_zoned(TimeZone::UTC).date(),
        steps: trial.steps,
    };
    show(&report, output)?;
    if let Some(entry) = report.proof() {
        say(&entry);
    }
    went.map(|()| ExitCode::Ok)
}

impl Report {
    /// What to add to the list of machines that were driven, where this one is not in it and shows who it is.
    fn proof(&self) -> Option<String> {
        let DriverLabel {
            driver,
            vendor,
            product,
            firmware,
            ..
        } = &self.service;
        if !self.qualified || *driver != Standing::Unproven {
            return None;
        }
        let entry = [
            ("vendor", vendor.clone()?),
            ("product", product.clone()?),
            ("firmware", firmware.clone()?),
            ("on", self.on.to_string()),
            ("source", "where this report is kept".to_owned()),
        ];
        let lines = entry.map(|(key, text)| format!("{key} = {}", serde_json::Value::String(text)));
        Some(format!(
            "such machines are labelled proven once hw-profiles/drivers.toml has this:\n\n[[proven]]\n{}",
            lines.join("\n")
        ))
    }
}

fn show(report: &Report, output: Output) -> Result<(), Failure> {
    let mut table = Table::new(["STEP", "WELL", "MS", "SEEN"]);
    for step in &report.steps {
        table.row([
            step.step.to_owned(),
            crate::tables::yes_no(step.well).to_owned(),
            step.ms.to_string(),
            step.seen.clone(),
        ]);
    }
    output.show_as(report, &table, |width| {
        format!(
            "{} on {} (port {}), by {}: {}\ndriver: {}\n{}",
            report.gpu,
            report.host,
            report.host_port,
            report.control,
            if report.qualified {
                "qualified"
            } else {
                "NOT qualified"
            },
            report.service,
            table.render(width)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_was_qualified_can_be_put_on_the_list() {
        let mut report = Report {
            gpu: "gpu-1".parse().unwrap(),
            host: "host-1".parse().unwrap(),
            host_port: "host-1:box".into(),
            control: "zones".into(),
            service: DriverLabel {
                vendor: Some("Maker".into()),
                product: Some("Box \"9\"".into()),
                firmware: Some("1.2".into()),
                ..DriverLabel::default()
            },
            on: "2026-08-01".parse().unwrap(),
            steps: Vec::new(),
            qualified: true,
        };
        let text = report.proof().unwrap();
        let entry: toml::Table = toml::from_str(text.split_once("\n\n").unwrap().1).unwrap();
        let proven = &entry["proven"][0];
        assert_eq!(proven["product"].as_str(), Some("Box \"9\""));
        assert_eq!(proven["on"].as_str(), Some("2026-08-01"));
        report.service.driver = Standing::Emulated;
        assert_eq!(report.proof(), None, "an emulator proves nothing");
        report.service.driver = Standing::Unproven;
        report.qualified = false;
        assert_eq!(report.proof(), None);
    }
}
