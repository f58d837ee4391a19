//! `discover`: looks at Redfish services once, without a manager, and prints a snapshot.
//!
//! What can't be read is a fault in the snapshot. It fails only if no endpoint could be read. It warns if hosts or GPUs may
//! be missing in the snapshot.

use super::Outcome;
use crate::access::{AccessArgs, read_listing};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables;
use crate::wire_up::{self, AnyConnector};
use clap::ArgGroup;
use futures_util::future::join_all;
use poolwright_collector::{CollectOptions, Look, assemble, look};
use poolwright_driver::Fabric;
use poolwright_executor::{Clock, SystemClock};
use poolwright_inventory::Snapshot;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_service::endpoint::EndpointSpec;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("from").args(["endpoint", "endpoints"]).required(true).multiple(true))]
pub struct DiscoverArgs {
    /// Address of a Redfish service; may be given several times
    #[arg(long, value_name = "URL")]
    endpoint: Vec<String>,
    /// List of services, as poolwright emulate writes it (endpoints.json)
    #[arg(long, value_name = "FILE")]
    endpoints: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    /// Requests under way at once at each endpoint; 4 suits a BMC, a fabric manager takes 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: Option<u16>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright discover --endpoint https://bmc-17 --username admin --password-file pw --ca ca.pem
  poolwright discover --endpoint http://127.0.0.1:8000 -o json
  poolwright discover --endpoints rack/endpoints.json -o csv

JSON: {gpus, hosts, fabrics, switches, links, units, device_ports, chassis, endpoints, faults, requests, elapsed_ms}; CSV: the GPUs.
Exit code 8: some endpoints could not be read, or some systems, chassis or processors of an endpoint. They are in faults.";

pub async fn run(args: DiscoverArgs, output: Output) -> Outcome {
    let mut specs: Vec<EndpointSpec> = args
        .endpoint
        .iter()
        .map(|url| args.access.endpoint(None, url))
        .collect();
    if let Some(file) = &args.endpoints {
        specs.extend(read_listing(file, &args.access)?);
    }
    if specs.is_empty() {
        return Err(
            Failure::usage("the list names no endpoint").with_hint("name at least one with --endpoint URL")
        );
    }
    // Named twice it would be counted twice.
    let mut addresses = BTreeSet::new();
    specs.retain(|spec| spec.address().is_none_or(|address| addresses.insert(address)));
    let connector = AnyConnector::with_concurrency(args.concurrency.map(usize::from));
    let (snapshot, failures) = discover(&connector, &specs, &Stop::heard()).await?;
    output.show_as(&snapshot, &tables::gpus(&snapshot.topology.gpus), |width| {
        tables::snapshot(&snapshot, width)
    })?;
    let hidden = machines_hidden(&snapshot.faults);
    if failures.is_empty() && hidden.is_none() {
        return Ok(ExitCode::Ok);
    }
    if !failures.is_empty() {
        let count = counted(specs.len(), "endpoint");
        say(&some_failed(&failures, &count).to_string());
    }
    if let Some(hidden) = hidden {
        say(&hidden.to_string());
    }
    Ok(ExitCode::Partial)
}

/// The systems, chassis and processors that could not be read; `None` if all were read.
fn machines_hidden(faults: &[Fault]) -> Option<Failure> {
    /// A controller that fails may do so at each of its resources.
    const SHOWN: usize = 5;
    let hiding: Vec<String> = faults
        .iter()
        .filter(|fault| wire_up::hides_machines(fault))
        .map(|fault| format!("\n  {}: {}", fault.source, fault.message))
        .collect();
    if hiding.is_empty() {
        return None;
    }
    let more = match hiding.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let shown = hiding.iter().take(SHOWN).map(String::as_str).collect::<String>();
    let message = format!("hosts or GPUs may be missing, because these could not be read:{shown}{more}");
    Some(Failure::new(ExitCode::Partial, message).with_hint("look at its own log, then discover again"))
}

/// Looks at all of them, and tells which could not be read; fails where none could be. However it ends, so do its sessions.
async fn discover(
    connector: &AnyConnector,
    specs: &[EndpointSpec],
    stop: &Stop,
) -> Result<(Snapshot, Vec<Failure>), Failure> {
    let began = Instant::now();
    let now = SystemClock.now();
    let options = CollectOptions::default();
    let progress = Progress::requests("reading");

    let mut fabrics: Vec<Arc<dyn Fabric>> = Vec::new();
    let mut unreached = Vec::new();
    let mut failures = Vec::new();
    for (id, connected) in wire_up::connect_all(connector, specs, options.endpoints_at_once, stop).await? {
        match connected {
            Ok(fabric) => fabrics.push(fabric),
            Err(error) => {
                unreached.push(Look::failed(id, &error, now));
                failures.push(error.into());
            }
        }
    }
    let looks = stop.or(look(&fabrics, now, options, &progress)).await;
    drop(progress);
    let goodbyes = fabrics.iter().map(|fabric| fabric.close());
    stop.goodbye(join_all(goodbyes)).await;
    let looks = looks?;
    failures.extend(looks.iter().filter_map(nothing_but_a_fault));
    if failures.len() == specs.len() {
        return Err(all_failed(failures));
    }
    let mut snapshot = assemble([looks, unreached].concat(), None, now);
    snapshot.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok((snapshot, failures))
}

/// The failure of an endpoint that was connected and then showed nothing at all.
fn nothing_but_a_fault(look: &Look) -> Option<Failure> {
    let topology = &look.view.topology;
    let refused = |fault: &&Fault| fault.kind == FaultKind::CredentialsRefused;
    let empty = topology.gpus.is_empty() && topology.hosts.is_empty() && topology.fabrics.is_empty();
    let fault = match look.answered {
        false => look.view.faults.first()?,
        true if empty => look.view.faults.iter().find(refused)?,
        true => return None,
    };
    let code = match fault.kind {
        FaultKind::CredentialsRefused | FaultKind::Tls => ExitCode::Authentication,
        _ => ExitCode::Unavailable,
    };
    let (message, hint) = match fault.message.rsplit_once("; ") {
        Some((message, hint)) => (message, hint),
        None => (
            fault.message.as_str(),
            "look at the service itself, and try again",
        ),
    };
    Some(Failure::new(code, format!("{}: {message}", fault.source)).with_hint(hint))
}

/// Which endpoints are missing in what was shown.
fn some_failed(failures: &[Failure], of: &str) -> Failure {
    let told: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    let message = format!(
        "{} of {of} could not be read:\n  {}",
        failures.len(),
        told.join("\n  ")
    );
    let hint = failures.iter().find_map(|failure| failure.hint.clone());
    Failure {
        hint,
        ..Failure::new(ExitCode::Partial, message)
    }
}

fn all_failed(failures: Vec<Failure>) -> Failure {
    let count = failures.len();
    let mut failures = failures.into_iter();
    let first = failures
        .next()
        .unwrap_or_else(|| Failure::usage("no endpoint was named"));
    if count == 1 {
        return first;
    }
    let message = format!(
        "none of {} could be read; the first: {}",
        counted(count, "endpoint"),
        first.message
    );
    Failure { message, ..first }
}
