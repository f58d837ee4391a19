//! `endpoint qualify`: binds, reads back and unbinds one spare GPU at one host, and takes the times. Shows
//! whether a machine can be driven before a manager is trusted with it.
//!
//! Only a GPU that is free is used, and it is free again at the end; where that can't be read back, the
//! report says so, with the exit code for an unknown outcome.

use crate::access::{AccessArgs, read_listing};
use crate::commands::Outcome;
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, Table};
use crate::progress::Progress;
use crate::wire_up::RedfishConnector;
use poolwright_collector::{CollectOptions, collect};
use poolwright_driver::{Bound, Confirmation, DriverError, Fabric, HostTarget, ResetSeen};
use poolwright_executor::{Clock, Options, SystemClock};
use poolwright_inventory::Snapshot;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Host, HostPort};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

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

Let no manager drive the machine meanwhile. Exit code 0 only where every step was read back.";

/// What was tried, and how it went.
#[derive(Serialize)]
struct Report {
    gpu: GpuId,
    host: HostId,
    host_port: String,
    control: String,
    steps: Vec<Timed>,
    qualified: bool,
}

#[derive(Serialize)]
struct Timed {
    step: &'static str,
    well: bool,
    ms: u64,
    seen: String,
}

/// A GPU and a host port that one manager can bind.
struct Pair {
    gpu: Gpu,
    host: Host,
    port: HostPort,
    unit_at: ControlPoint,
    port_at: ControlPoint,
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
    let connector = RedfishConnector::default();
    let mut drivers: BTreeMap<ControlEndpointId, Connected> = BTreeMap::new();
    for spec in &specs {
        connector.endpoint(spec)?;
        drivers.insert(spec.id.clone(), connector.connect(spec).await?);
    }
    let ended = qualify(&args, &drivers, output).await;
    for connected in drivers.values() {
        connected.fabric.close().await;
    }
    ended
}

async fn qualify(
    args: &QualifyArgs,
    drivers: &BTreeMap<ControlEndpointId, Connected>,
    output: Output,
) -> Outcome {
    let fabrics: Vec<Arc<dyn Fabric>> = drivers
        .values()
        .map(|connected| connected.fabric.clone())
        .collect();
    let snapshot = collect(&fabrics, None, SystemClock.now(), CollectOptions::default(), &()).await;
    let pair = choose(&snapshot, args.gpu.as_ref(), args.host.as_ref())?;
    args.confirm
        .confirm(&format!("bind {} to {} for a moment", pair.gpu.id, pair.host.id))?;
    let driver = drivers.get(&pair.unit_at.endpoint).ok_or_else(|| {
        Failure::new(
            ExitCode::Generic,
            format!("no endpoint was named that binds {}", pair.gpu.id),
        )
        .with_hint("name the fabric's manager with --endpoint")
    })?;
    let bmc = pair.host.bmc.as_ref().and_then(|bmc| drivers.get(bmc));
    let mut trial = Trial {
        pair: &pair,
        driver,
        bmc,
        steps: Vec::new(),
        progress: Progress::spinner("qualifying"),
    };
    let went = trial.run().await;
    let report = Report {
        gpu: pair.gpu.id.clone(),
        host: pair.host.id.clone(),
        host_port: pair.port.id.to_string(),
        control: pair.unit_at.style.to_string(),
        qualified: went.is_ok(),
        steps: trial.steps,
    };
    show(&report, output)?;
    went.map(|()| ExitCode::Ok)
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
            "{} on {} (port {}), by {}: {}\n{}",
            report.gpu,
            report.host,
            report.host_port,
            report.control,
            if report.qualified {
                "qualified"
            } else {
                "NOT qualified"
            },
            table.render(width)
        )
    })
}

/// A free GPU, and a host port in reach with a free slot: the first of both, in the order of their ids.
fn choose(snapshot: &Snapshot, gpu: Option<&GpuId>, host: Option<&HostId>) -> Result<Pair, Failure> {
    let topology = &snapshot.topology;
    let missing = |kind: &str, id: &str| {
        Failure::new(ExitCode::NotFound, format!("there is no {kind} {id}"))
            .with_hint("poolwright discover shows what there is")
    };
    if let Some(id) = gpu {
        let found = topology.gpu(id).ok_or_else(|| missing("GPU", id.as_str()))?;
        if found.state != GpuState::Free || !found.composability.is_composable() {
            let why = found
                .composability
                .0
                .as_ref()
                .map_or_else(|| found.state.name().to_owned(), ToString::to_string);
            return Err(
                Failure::new(ExitCode::Conflict, format!("{id} is not spare: {why}"))
                    .with_hint("name another GPU, or leave --gpu out"),
            );
        }
    }
    if let Some(id) = host {
        topology.host(id).ok_or_else(|| missing("host", id.as_str()))?;
    }
    let graph = topology.switch_graph();
    let spare =
        |candidate: &&Gpu| candidate.state == GpuState::Free && candidate.composability.is_composable();
    let gpus = topology
        .gpus
        .iter()
        .filter(spare)
        .filter(|candidate| gpu.is_none_or(|id| candidate.id == *id));
    for gpu in gpus {
        for candidate in topology
            .hosts
            .iter()
            .filter(|candidate| host.is_none_or(|id| candidate.id == *id))
        {
            for port in &candidate.ports {
                let bound = topology
                    .gpus
                    .iter()
                    .filter(|gpu| gpu.host_port.as_ref() == Some(&port.id))
                    .count();
                let Some(port_at) = &port.control else { continue };
                let same_manager =
                    |at: &&ControlPoint| at.endpoint == port_at.endpoint && at.style == port_at.style;
                let Some(unit_at) = gpu.control.iter().find(same_manager) else {
                    continue;
                };
                if bound < port.slots as usize && graph.hops(port, gpu).is_some() {
                    return Ok(Pair {
                        gpu: gpu.clone(),
                        host: candidate.clone(),
                        port: port.clone(),
                        unit_at: unit_at.clone(),
                        port_at: port_at.clone(),
                    });
                }
            }
        }
    }
    Err(Failure::new(
        ExitCode::Conflict,
        "there is no spare GPU with a host port in reach that has a free slot",
    )
    .with_hint("poolwright discover shows which GPUs are composable, and which hosts have slots"))
}

/// One run through all steps.
struct Trial<'a> {
    pair: &'a Pair,
    driver: &'a Connected,
    bmc: Option<&'a Connected>,
    steps: Vec<Timed>,
    progress: Progress,
}

impl Trial<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let Pair {
            gpu,
            host,
            unit_at,
            port_at,
            ..
        } = self.pair;
        let options = Options::default();
        let fabric = self.driver.fabric.clone();
        self.expect("read before", Bound::Free).await?;
        let bound = fabric.bind(unit_at, port_at, options.act_deadline);
        let went = match self.timed("bind", bound, |()| "accepted".to_owned()).await {
            Ok(()) => match self
                .expect(
                    "read back",
                    Bound::To {
                        port_address: port_at.address.clone(),
                    },
                )
                .await
            {
                Ok(()) => self.confirm_from_host(&options).await,
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        // Whatever happened, it must be as it was: what the fabric shows decides, not what we hope.
        match fabric.bound(unit_at, options.read_deadline).await {
            Ok(Bound::Free) => {}
            Ok(_) => {
                let unbound = fabric.unbind(unit_at, port_at, options.act_deadline);
                self.timed("unbind", unbound, |()| "accepted".to_owned()).await?;
            }
            Err(error) => {
                let message = format!(
                    "whether {} is still bound to {} can't be read: {error}",
                    gpu.id, host.id
                );
                return Err(Failure::new(ExitCode::Indeterminate, message)
                    .with_hint("look at the machine, and unbind it there"));
            }
        }
        self.expect("read after", Bound::Free).await?;
        let reset = fabric.reset(unit_at, options.act_deadline);
        let seen = |seen: &ResetSeen| match seen {
            ResetSeen::Done => "reset, and ready again".to_owned(),
            ResetSeen::CannotTell => "this machine can't tell whether it was reset".to_owned(),
        };
        self.timed("reset", reset, seen).await?;
        went
    }

    /// Reads from the fabric until it shows what is expected, or for as long as a fabric may lag behind.
    async fn expect(&mut self, step: &'static str, wanted: Bound) -> Result<(), Failure> {
        let (unit_at, options) = (&self.pair.unit_at, Options::default());
        let fabric = self.driver.fabric.clone();
        let read = async {
            let began = Instant::now();
            loop {
                let found = fabric.bound(unit_at, options.read_deadline).await?;
                if found == wanted {
                    return Ok(found);
                }
                if began.elapsed() >= options.settle {
                    let message = format!("the fabric shows {}, expected {}", said(&found), said(&wanted));
                    return Err(DriverError::unknown(message));
                }
                tokio::time::sleep(options.first_pause / 5).await;
            }
        };
        self.timed(step, read, said).await.map(drop)
    }

    /// Waits until the host's BMC shows the GPU, where one was named that speaks for the host.
    async fn confirm_from_host(&mut self, options: &Options) -> Result<(), Failure> {
        let Some(bmc) = self.bmc else {
            self.progress
                .note("no BMC was named for this host: the fabric's word must do");
            return Ok(());
        };
        let Pair { gpu, host, port, .. } = self.pair;
        let target = HostTarget {
            host: host.id.clone(),
            host_port: port.id.clone(),
            gpus: vec![gpu.id.clone()],
            known_as: gpu.uuid.iter().chain(&gpu.serial).cloned().collect(),
        };
        let host_side = bmc.host_side.clone();
        let look = async {
            let began = Instant::now();
            loop {
                match host_side.verify(&target, options.host_deadline).await? {
                    Confirmation::Seen { evidence } => return Ok(evidence),
                    Confirmation::CannotTell { reason } => return Ok(format!("it can't tell: {reason}")),
                    Confirmation::NotSeen { reason } if began.elapsed() >= options.verify_deadline => {
                        return Err(DriverError::no_effect(format!(
                            "the host does not see it: {reason}"
                        )));
                    }
                    Confirmation::NotSeen { .. } => tokio::time::sleep(options.verify_pause / 4).await,
                }
            }
        };
        self.timed("seen by the host", look, String::clone)
            .await
            .map(drop)
    }

    async fn timed<T>(
        &mut self,
        step: &'static str,
        doing: impl Future<Output = Result<T, DriverError>>,
        seen: impl FnOnce(&T) -> String,
    ) -> Result<T, Failure> {
        self.progress.doing(step);
        let began = Instant::now();
        let done = doing.await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let shown = done.as_ref().map_or_else(ToString::to_string, seen);
        self.steps.push(Timed {
            step,
            well: done.is_ok(),
            ms,
            seen: shown,
        });
        done.map_err(|error| {
            let failure = Failure::from(error);
            Failure {
                message: format!("{step}: {}", failure.message),
                ..failure
            }
        })
    }
}

fn said(bound: &Bound) -> String {
    match bound {
        Bound::Free => "bound to nothing".to_owned(),
        Bound::To { port_address } => format!("bound to {port_address}"),
        Bound::Several { port_addresses } => format!("bound to several ports: {}", port_addresses.join(", ")),
    }
}
