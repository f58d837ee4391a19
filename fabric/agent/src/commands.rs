//! `agent`: the host's side, on the host that it speaks for.

mod enrol;
mod prepare;
mod serve;
mod watch;

use crate::{Check, Coming, Expected, Gpu, Inventory, Verdict, verdict};
use poolwright_model::units::Bytes;
use poolwright_pcie::{Address, Fault, Function, Ids, Link, Machine, Nvml, NvmlGpu, NvmlState, Port, Why};
use poolwright_terminal::output::{Cell, Output, Table, column, say, word};
use poolwright_terminal::{ExitCode, Failure, Outcome};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say what this host has: GPUs, slots, ports and what still fits there
    Inventory(InventoryArgs),
    /// Say who uses a PCI function of this host: processes, mounts, what is built on it
    Holders(HoldersArgs),
    /// Say whether a GPU could come to a port: slot, window, bus numbers, driver
    Preflight(PreflightArgs),
    /// Say whether a PCI function that came can be used: ids, BARs, link, driver
    Verify(VerifyArgs),
    /// Say what this host needs before GPUs can come and go: the kernel's line, firmware, services
    Prepare(prepare::PrepareArgs),
    /// Become known to a manager, by a token that was made there
    Enrol(enrol::EnrolArgs),
    /// Answer this host's manager: what it has, whether a GPU can come or has come, who uses it
    Serve(serve::ServeArgs),
    /// Tell which PCI functions come, go, and get a driver, as it happens
    Watch(watch::WatchArgs),
}

/// The host that is asked.
#[derive(Debug, clap::Args)]
struct Host {
    /// Folder that holds `sys` and `proc` of the host
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

impl Host {
    /// The driver's library, of the machine that this runs on alone.
    fn nvml(&self) -> Nvml {
        match self.root.as_path() == Path::new("/") {
            true => Nvml::load(),
            false => Nvml::not_asked(),
        }
    }

    fn root(&self) -> Result<&Path, Failure> {
        if self.root.join("sys").is_dir() {
            return Ok(&self.root);
        }
        let message = format!("{} holds no folder sys", self.root.display());
        Err(Failure::usage(message)
            .with_hint("--root names the folder that holds sys and proc of a Linux host"))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = INVENTORY_EXAMPLES)]
struct InventoryArgs {
    #[command(flatten)]
    host: Host,
}

#[derive(Debug, clap::Args)]
#[command(after_help = HOLDERS_EXAMPLES)]
struct HoldersArgs {
    /// The function, such as 0000:41:00.0
    function: Address,
    #[command(flatten)]
    host: Host,
}

#[derive(Debug, clap::Args)]
#[command(after_help = PREFLIGHT_EXAMPLES)]
struct PreflightArgs {
    /// The port that it would come to, such as 0000:40:01.0
    port: Address,
    /// What one of its 64-bit registers wants of the port's window; may be repeated
    #[arg(long = "bar", value_name = "BYTES")]
    bars: Vec<Bytes>,
    /// Its vendor and device, as lspci shows them: whether a module is installed that drives it
    #[arg(long, value_name = "VENDOR:DEVICE", value_parser = parse_ids)]
    ids: Option<Ids>,
    #[command(flatten)]
    host: Host,
}

#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_EXAMPLES)]
struct VerifyArgs {
    /// The function, such as 0000:41:00.0
    function: Address,
    /// Vendor and device that it must have
    #[arg(long, value_name = "VENDOR:DEVICE", value_parser = parse_ids)]
    ids: Option<Ids>,
    /// Registers in memory that it must have
    #[arg(long, value_name = "COUNT")]
    bars: Option<usize>,
    /// The least that its link must carry: GT/s at its best, and lanes now
    #[arg(long, value_name = "SPEEDxWIDTH")]
    link: Option<Link>,
    /// The driver that must be bound
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    #[command(flatten)]
    host: Host,
}

const EXAMPLES: &str = "\
Examples:
  poolwright-agent inventory
  poolwright-agent inventory -o json
  sudo poolwright-agent holders 0000:41:00.0

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 authentication, 5 conflict (also a check that failed), 8 partial (also a
check that could not tell), 9 indeterminate, 10 unavailable, 130 interrupted by Ctrl-C";

const INVENTORY_EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent inventory         serial numbers and free slots are shown to root alone
  poolwright-agent inventory -o json
  poolwright-agent inventory --root copy-of-a-host

JSON: {host, nvml, nvml_fault, gpus, strays, others, slots, ports, faults}; CSV: the GPUs. nvml_fault says why the NVIDIA \
driver could not be asked about GPUs that it drives. A host without a GPU is healthy.";

const HOLDERS_EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent holders 0000:41:00.0
  sudo poolwright-agent holders 0000:41:00.0 -o json

JSON: {holders: [{how, what, pid, by}], unseen, unreadable: [{pid, by, why, may_hold}]}. Only root reads the processes of \
others: unseen counts those that may hold it and could not be read, unreadable names the first ten. Exit code 5 where something \
holds it, 8 where nothing was found and not everything could be read.";

const PREFLIGHT_EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent preflight 0000:40:01.0 --bar 128GiB --bar 32MiB --ids 10de:2330

JSON: [{check, verdict, says}], verdict good, bad or cannot-tell. Exit code 5 where one is bad, 8 where one can't be told.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent verify 0000:41:00.0
  sudo poolwright-agent verify 0000:41:00.0 --ids 10de:2330 --bars 3 --link 32x16 --driver nvidia

JSON: [{check, verdict, says}], verdict good, bad or cannot-tell. Exit code 5 where one is bad, 8 where one can't be told.";

pub async fn run(args: &AgentArgs, output: Output) -> Outcome {
    match &args.command {
        Command::Inventory(args) => inventory(args, output),
        Command::Holders(args) => holders(args, output),
        Command::Preflight(args) => preflight(args, output),
        Command::Verify(args) => verify(args, output),
        Command::Prepare(args) => prepare::prepare(args, output),
        Command::Enrol(args) => enrol::run(args, output).await,
        Command::Serve(args) => serve::serve(args).await,
        Command::Watch(args) => watch::watch(args, output),
    }
}

fn inventory(args: &InventoryArgs, output: Output) -> Outcome {
    let root = args.host.root()?;
    let inventory = crate::inventory(root, &args.host.nvml());
    let gpus = gpus(&inventory);
    if let Some(fault) = &inventory.nvml_fault {
        say(fault);
    }
    output.show_as(&inventory, &gpus, |width| as_text(&inventory, &gpus, width))?;
    for fault in &inventory.faults {
        say(&format!(
            "{} {}",
            root.join(&fault.path).display(),
            in_words(fault)
        ));
    }
    Ok(ExitCode::Ok)
}

fn holders(args: &HoldersArgs, output: Output) -> Outcome {
    let root = args.host.root()?;
    let function = args.function;
    if !root
        .join("sys/bus/pci/devices")
        .join(function.to_string())
        .exists()
    {
        let message = format!("this host has no function {function}");
        return Err(Failure::new(ExitCode::NotFound, message)
            .with_hint("poolwright-agent inventory shows what there is"));
    }
    let known = args.host.nvml().gpus().unwrap_or_default();
    let gpu = known.iter().find(|gpu| gpu.address == Some(function));
    let found = crate::holders(root, &[function], gpu);
    let mut table = Table::new(["HOW", "WHAT", "PID", "BY"]);
    for holder in &found.holders {
        let cells = [
            word(&holder.how),
            Cell::text(&holder.what),
            Cell::maybe(holder.pid),
            Cell::text(&holder.by),
        ];
        table.row(cells);
    }
    output.show_as(&found, &table, |width| {
        match (found.holders.is_empty(), found.unseen) {
            (true, 0) => "free: no holder found\n".to_owned(),
            (true, _) => "cannot tell: no holder found, and not everything could be read\n".to_owned(),
            (false, _) => table.render(width),
        }
    })?;
    for unreadable in &found.unreadable {
        let cleared = match unreadable.may_hold {
            true => "",
            false => " (not on the driver's list of processes, so it prevents nothing)",
        };
        say(&format!("not readable: {unreadable}{cleared}"));
    }
    if found.unseen > 0 {
        say(&format!(
            "{} could not be read and may hold it: run it as root, with CAP_SYS_PTRACE",
            found.unseen
        ));
    }
    Ok(match (found.holders.is_empty(), found.unseen) {
        (false, _) => ExitCode::Conflict,
        (true, 0) => ExitCode::Ok,
        (true, _) => ExitCode::Partial,
    })
}

fn preflight(args: &PreflightArgs, output: Output) -> Outcome {
    let root = args.host.root()?;
    let kernel = crate::identity(root).kernel;
    let coming = Coming {
        bars: args.bars.clone(),
        ids: args.ids,
    };
    let look = Machine::at(root).look();
    let checks = crate::preflight(root, &look, kernel.as_deref(), args.port, &coming);
    show(&checks, output)
}

fn verify(args: &VerifyArgs, output: Output) -> Outcome {
    let expected = Expected {
        vendor: args.ids.map(|ids| ids.vendor),
        device: args.ids.map(|ids| ids.device),
        bars: args.bars,
        link: args.link,
        driver: args.driver.clone(),
    };
    let look = Machine::at(args.host.root()?).look();
    show(&crate::verify(&look, args.function, &expected), output)
}

fn show(checks: &[Check], output: Output) -> Outcome {
    let mut table = Table::new(["CHECK", "VERDICT", "SAYS"]);
    for check in checks {
        table.row([
            Cell::text(check.check),
            word(&check.verdict),
            Cell::text(&check.says),
        ]);
    }
    output.show(&checks, &table)?;
    Ok(match verdict(checks) {
        Verdict::Good | Verdict::NotApplicable => ExitCode::Ok,
        Verdict::Bad => ExitCode::Conflict,
        Verdict::CannotTell => ExitCode::Partial,
    })
}

/// `10de:2330`.
fn parse_ids(text: &str) -> Result<Ids, String> {
    let id = |text: &str| u16::from_str_radix(text, 16).ok().filter(|_| text.len() == 4);
    let ids = text
        .split_once(':')
        .and_then(|(vendor, device)| id(vendor).zip(id(device)));
    let (vendor, device) =
        ids.ok_or_else(|| format!("{text:?} is no vendor and device such as 10de:2330"))?;
    Ok(Ids {
        vendor,
        device,
        subsystem_vendor: 0,
        subsystem_device: 0,
    })
}

fn as_text(inventory: &Inventory, gpus: &Table, width: Option<u16>) -> String {
    let mut text = String::new();
    if inventory.gpus.is_empty() {
        text.push_str("no GPU\n");
    } else {
        text.push_str(&gpus.render(width));
    }
    let slots: Vec<&Port> = inventory
        .ports
        .iter()
        .filter(|port| can_take_more(port))
        .collect();
    if !slots.is_empty() {
        text.push('\n');
        text.push_str(&ports(&slots, inventory).render(width));
    }
    text
}

fn gpus(inventory: &Inventory) -> Table {
    let mut table = Table::new([
        column("ADDRESS"),
        column("ID"),
        column("UUID").if_any(),
        column("SERIAL").if_any().if_room(),
        column("MEMORY").if_any(),
        column("BUSY").if_any().if_room(),
        column("BARS"),
        column("LINK"),
        column("DRIVER"),
        column("STATE"),
    ]);
    for Gpu {
        function: gpu,
        driver_says,
    } in &inventory.gpus
    {
        let says = driver_says.as_ref();
        let id = gpu
            .ids
            .map(|ids| format!("{:04x}:{:04x}", ids.vendor, ids.device));
        let bars: Vec<String> = gpu.bars.iter().map(|bar| Bytes(bar.bytes).to_string()).collect();
        let link = gpu
            .link
            .map(|link| format!("{} GT/s x{}", f64::from(link.mt_per_s) / 1000.0, link.width));
        table.row([
            Cell::text(gpu.address),
            Cell::maybe(id),
            Cell::maybe(says.and_then(|says| says.uuid.as_ref())),
            Cell::maybe(gpu.serial.as_ref()),
            Cell::bytes(says.and_then(|says| says.memory_bytes).map(Bytes)),
            Cell::maybe(
                says.and_then(|says| says.utilization_percent)
                    .map(|busy| format!("{busy} %")),
            ),
            listed(&bars),
            Cell::maybe(link),
            Cell::maybe(gpu.driver.as_ref()),
            Cell::text(state(gpu, says, &inventory.nvml)),
        ]);
    }
    table
}

fn listed(words: &[String]) -> Cell {
    Cell::maybe((!words.is_empty()).then(|| words.join(", ")))
}

/// The worst fault of a GPU. A GPU is not visible to the driver only if the driver was asked.
fn state(gpu: &Function, says: Option<&NvmlGpu>, nvml: &NvmlState) -> &'static str {
    if gpu.answers == Some(false) {
        "dead: its config space reads all ones"
    } else if gpu
        .bars_without_room
        .as_ref()
        .is_some_and(|bars| !bars.is_empty())
    {
        "unusable: no room for its BARs"
    } else if gpu.driver.is_none() {
        "no driver"
    } else if gpu.driver.as_deref() == Some("nvidia") && says.is_none_or(|says| says.uuid.is_none()) {
        match nvml {
            NvmlState::Ready { .. } => "not visible to the driver",
            NvmlState::NotAsked => "ok (NVML not asked)",
            _ => "NVML can't be asked",
        }
    } else {
        "ok"
    }
}

/// A port with a slot that something can be plugged into while the host runs.
fn can_take_more(port: &Port) -> bool {
    port.hotplug.is_some_and(|slot| slot.capable)
}

fn ports(ports: &[&Port], inventory: &Inventory) -> Table {
    let mut table = Table::new(["PORT", "SLOT", "HOLDS", "LARGEST FREE", "HOT-PLUG"]);
    for port in ports {
        let gpus = inventory.gpus.iter().map(|gpu| &gpu.function);
        let functions = gpus.chain(&inventory.others);
        let below: Vec<String> = functions
            .filter(|function| function.port == Some(port.address))
            .map(|function| function.address.to_string())
            .collect();
        table.row([
            Cell::text(port.address),
            Cell::maybe(port.hotplug.map(|slot| slot.number)),
            listed(&below),
            Cell::bytes(port.prefetchable().map(|window| Bytes(window.largest_free()))),
            Cell::text(if port.native { "pciehp" } else { "firmware" }),
        ]);
    }
    table
}

fn in_words(fault: &Fault) -> String {
    let why = match fault.why {
        Why::Missing => "is not there",
        Why::Empty => "is empty",
        Why::Denied => "may be read by root alone",
        Why::Failed => "could not be read",
        Why::Garbled => "says what it can't",
        Why::AllOnes => "reads all ones: the device is gone, or dead",
    };
    if fault.found.is_empty() {
        why.to_owned()
    } else {
        format!("{why}: {:?}", fault.found)
    }
}
