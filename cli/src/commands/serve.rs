//! `serve`: the manager, until it is interrupted.

use super::Outcome;
use super::number::within;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::say;
use crate::service_failure::refused;
use crate::stop::stopped;
use crate::wire_up::{
    self, AnyConnector, EventOptions, Limits, ManagerFiles, Rack, RackServing, ServedApi, ServedRack,
    SiteCertificate, StoreArgs,
};
use futures_util::StreamExt;
use poolwright_collector::CollectOptions;
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::Standing;
use poolwright_service::keep::{Keep, Level};
use poolwright_service::subscription::{Allowed, Network};
use poolwright_service::suspicion::USUAL_THRESHOLD;
use poolwright_service::{CheckResult, Composer, Keys, Options, Paused, runner};
use poolwright_terminal::manager::read_authority;
use poolwright_terminal::{duration, some_time};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Folder for everything that the manager keeps; made at the first start
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Address to serve at; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Name or address that clients ask it by, beside those of this machine; repeatable
    #[arg(long, value_name = "NAME", value_parser = name_of_server)]
    name: Vec<String>,
    /// Certificate of the site's own authority to serve with, in PEM, with those between it and the authority. It is
    /// read again when it is another one, and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority whose certificates machines may show in place of a password, in PEM: each is the account that one of
    /// its DNS names is the name of
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Directory with the password, CA and lab files that endpoints may name (endpoint add --by-reference); without it
    /// they may name none. Keep nothing else in it: an administrator can have its files sent to any address
    #[arg(long, value_name = "DIR")]
    endpoint_files: Option<PathBuf>,
    /// Connections that one address may have at a time, of 4,096 in all
    #[arg(long, value_name = "COUNT", default_value = "256")]
    connections_of_one: NonZeroUsize,
    /// Run on an emulated rack, in the same process: rack file, or the name of one that comes with Poolwright
    #[arg(long, value_name = "FILE|NAME")]
    rack: Option<String>,
    /// The longest that one bind, unbind, reset or drain may take. A manager that takes over from another one waits
    /// for so long and a quarter
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    request_deadline: Duration,
    /// How long a host may take until it sees a GPU that was bound to it; after that the attach is undone
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = some_time)]
    confirm_deadline: Duration,
    /// Size demands with constants corrected by measured peaks, as `size calibrate --out` writes them; every need that
    /// they change says so, with this file
    #[arg(long, value_name = "FILE.json")]
    calibration: Option<PathBuf>,
    /// Commands that schedules may have run by name, each an argument vector:
    /// save = ["/usr/local/bin/save", "--all"]
    #[arg(long, value_name = "FILE.toml")]
    hooks: Option<PathBuf>,
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    keep: KeepArgs,
    /// Make a new password for the account admin where DIR/initial-admin-password is missing, or opens nothing
    #[arg(long)]
    new_admin_password: bool,
    /// Private network that events may be sent to, such as 10.0.0.0/8 or one address; repeatable
    #[arg(long, value_name = "NETWORK")]
    event_allow: Vec<Network>,
    /// Certificate authorities that destinations of events are believed by, instead of this machine's
    #[arg(long, value_name = "FILE.pem")]
    event_ca: Option<PathBuf>,
    /// Send events to loopback addresses, too: whoever may subscribe reaches services of this machine
    #[arg(long)]
    insecure_event_loopback: bool,
    /// Have adopted endpoints that only push events push them to this manager, which they reach at this address, and no
    /// other manager; without it they are polled
    #[arg(long, value_name = "https://HOST[:PORT]", value_parser = address_of_manager)]
    pushed_to: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// What is done with GPUs that will be wanted soon. Nothing, if nothing is said.
#[derive(Debug, clap::Args)]
struct KeepArgs {
    /// Leave GPUs that are released attached, idle, where their tenant is expected to want them again soon: with p50 where
    /// that is likelier than not, with p90 where it is not unlikely; whoever needs them gets them
    #[arg(long, value_name = "LEVEL", value_enum)]
    keep: Option<Surely>,
    /// What is expected within so many hours counts
    #[arg(long, value_name = "HOURS", default_value = "2", requires = "keep", value_parser = within::<u32>(1, 24))]
    keep_hours: u32,
    /// No more GPUs than these are kept
    #[arg(long, value_name = "N", default_value = "16", requires = "keep", value_parser = within::<u32>(1, 65_536))]
    keep_most: u32,
    /// Attach free GPUs ahead, too, where a tenant is expected to want more than it has
    #[arg(long, requires = "keep")]
    attach_ahead: bool,
}

/// What agents are asked to measure of their GPUs.
#[derive(Debug, clap::Args)]
struct MeasureArgs {
    /// Interval at which each agent is asked for telemetry of its GPUs: 5s to 1h, or 0 for never
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = rate)]
    telemetry_every: Rate,
    /// A GPU is suspect whose link had more correctable errors than these within an hour; with 0 none is
    #[arg(long, value_name = "COUNT", default_value_t = USUAL_THRESHOLD)]
    suspect_above: u32,
}

/// `None`: never.
type Rate = Option<Duration>;

fn rate(text: &str) -> Result<Rate, String> {
    let allowed = Duration::from_secs(5)..=Duration::from_secs(3600);
    match duration(text) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(time) if allowed.contains(&time) => Ok(Some(time)),
        Ok(_) => Err("allowed: 5s to 1h, or 0 for never".to_owned()),
        Err(_) if text == "0" => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Surely {
    P50,
    P90,
}

impl KeepArgs {
    fn policy(&self) -> Option<Keep> {
        Some(Keep {
            level: match self.keep? {
                Surely::P50 => Level::P50,
                Surely::P90 => Level::P90,
            },
            ahead_h: self.keep_hours,
            most_gpus: self.keep_most,
            attach: self.attach_ahead,
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  poolwright serve --data-dir pool --rack demo
  poolwright serve --data-dir /var/lib/poolwright --listen 0.0.0.0:8443 --name pool.example.com --name 10.0.0.9
  poolwright serve --data-dir /var/lib/poolwright --listen 0.0.0.0:8443 \
      --tls-cert /etc/poolwright/site.pem --tls-key /etc/poolwright/site-key.pem --client-ca /etc/poolwright/machines.pem
  poolwright serve --data-dir /var/lib/poolwright --endpoint-files /etc/poolwright/endpoints
  poolwright serve --data-dir /var/lib/poolwright --calibration /etc/poolwright/here.json
  poolwright serve --data-dir /var/lib/poolwright --hooks /etc/poolwright/hooks.toml
  poolwright serve --data-dir /var/lib/poolwright --event-allow 10.0.0.0/8 --event-ca /etc/poolwright/collector-ca.pem
  poolwright serve --data-dir /var/lib/poolwright --listen 0.0.0.0:8443 --pushed-to https://10.0.0.9:8443
  poolwright serve --data-dir /var/lib/poolwright --telemetry-every 10s --suspect-above 100
  poolwright serve --data-dir /var/lib/poolwright --keep p50 --keep-hours 2 --keep-most 16 --attach-ahead
  poolwright serve --data-dir /var/lib/poolwright --store postgres://poolwright@db/pool \
      --store-password-file /etc/poolwright/db-password --store-ca /etc/poolwright/db-ca.pem

The first start writes DIR/tls/ca.pem, DIR/tls/server.pem and DIR/initial-admin-password (account admin).
To ask it:
  export POOLWRIGHT_CA=pool/tls/ca.pem POOLWRIGHT_PASSWORD_FILE=pool/initial-admin-password
  poolwright get gpus
Nobody has the password any more, as after a restore: start it with --new-admin-password.
SIGTERM and SIGINT stop it; operations under way are carried on at the next start.";

impl ServeArgs {
    /// Where events may be sent.
    fn events(&self) -> Result<EventOptions, Failure> {
        let read = |file: &PathBuf| read_authority(file).map(String::into_bytes);
        Ok(EventOptions {
            allowed: Allowed {
                networks: self.event_allow.clone(),
                loopback: self.insecure_event_loopback,
            },
            ca: self.event_ca.as_ref().map(read).transpose()?,
            ..EventOptions::default()
        })
    }

    /// Files with the manager's own secrets.
    fn secrets(&self) -> Vec<PathBuf> {
        let own = [
            wire_up::SECRET_KEY,
            "initial-admin-password",
            "tls/server.pem",
            "tls/replaced.pem",
            "tls/ca-key.pem",
        ];
        let own = own.map(|name| self.data_dir.join(name));
        let named = self.store.secret_files().chain(self.tls_key.clone());
        own.into_iter().chain(named).collect()
    }

    /// The files that endpoints may name.
    fn endpoint_files(&self) -> Result<ManagerFiles, Failure> {
        let rack = self.rack.as_ref();
        let rack = rack.map(|_| wire_up::files_of_rack(&self.data_dir.join("rack")));
        let own = self.secrets().into_iter().chain([self.data_dir.clone()]);
        ManagerFiles::new(self.endpoint_files.as_deref(), rack.unwrap_or_default(), own)
    }

    fn certificate(&self) -> Option<SiteCertificate> {
        let (chain, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(SiteCertificate { chain, key })
    }
}

/// The longest that a stop may take.
const DRAIN: Duration = Duration::from_secs(10);
/// After so many endpoints that were added the next line says so.
const TOLD_EACH: usize = 100;

/// A file would grow beyond what the process may write.
const XFSZ: SignalKind = SignalKind::from_raw(25);

pub async fn run(args: ServeArgs) -> Outcome {
    // What can be wrong with the arguments comes before anything is kept.
    let rack = args.rack.as_deref().map(wire_up::read_rack).transpose()?;
    let calibration = args
        .calibration
        .as_deref()
        .map(super::size::read_calibration)
        .transpose()?;
    let hooks = args.hooks.as_deref().map(wire_up::read_hooks).transpose()?;
    let cluster_key = args.store.cluster_key()?;
    let events = args.events()?;
    let endpoint_files = args.endpoint_files()?;
    let listener = wire_up::listen(args.listen)?;
    // That is an error of the write, and not the end of the process. Held for as long as it runs.
    let _write_fails = signal(XFSZ);
    let store = wire_up::open_store(&args.data_dir, &args.store).await?;
    wire_up::warn_of_exposed(&args.secrets());
    let connector = Arc::new(AnyConnector::of_manager(endpoint_files));
    let secret_key = args.data_dir.join(wire_up::SECRET_KEY);
    let had_secret_key = secret_key.exists();
    let mut options = Options {
        keys: Keys {
            own: Some(wire_up::own_key(&args.data_dir)?),
            cluster: cluster_key.clone(),
        },
        ..Options::default()
    };
    options.execute.act_deadline = args.request_deadline;
    options.execute.host_deadline = options.execute.host_deadline.min(args.request_deadline);
    options.execute.verify_deadline = args.confirm_deadline;
    options.calibration = calibration.unwrap_or_default();
    options.keep = args.keep.policy();
    options.telemetry = args.measure.telemetry_every;
    options.suspect_above = Some(args.measure.suspect_above).filter(|most| *most > 0);
    options.pushed_to.clone_from(&args.pushed_to);
    if let Some(hooks) = hooks {
        options.hooks = Arc::new(hooks);
    }
    if let Some(file) = &args.calibration {
        let corrections = &options.calibration.corrections;
        say(&format!("sizing is calibrated by {}:", file.display()));
        corrections
            .iter()
            .for_each(|correction| say(&format!("  {}", correction.summary())));
    }
    options.sharing = args
        .store
        .sharing(&args.data_dir, args.listen, &options.execute)?;
    let composer = Composer::new(store.clone(), connector, Arc::new(WallClock), options);
    wire_up::check_secret_key(&composer, &secret_key, had_secret_key).await?;
    // Nothing is sent to any endpoint before the address is ours.
    let api = wire_up::serve_api(
        composer.clone(),
        listener,
        wire_up::ApiServing {
            names: args.name.clone(),
            cluster_key,
            new_admin_password: args.new_admin_password,
            events,
            certificate: args.certificate(),
            client_ca: args.client_ca.clone(),
            limits: Limits {
                connections_of_one: args.connections_of_one.get(),
                ..Limits::default()
            },
            ..wire_up::ApiServing::of(args.data_dir.clone())
        },
    )
    .await?;
    let mut served = None;
    let stopped = stopped();
    let managed = tokio::select! {
        never = manage(&args, rack, &composer, &api, &mut served) => never.map(|never| match never {}),
        () = stopped => {
            say("stopping; operations under way are carried on at the next start");
            Ok(ExitCode::Ok)
        }
    };
    stop(composer, api, served).await;
    // Whoever is still busy with it must not keep it from being closed well.
    store.close().await;
    managed
}

/// Starts, and runs until it is dropped or can't go on. All that is begun at endpoints is the composer's to
/// end.
async fn manage(
    args: &ServeArgs,
    rack: Option<Rack>,
    composer: &Composer,
    api: &ServedApi,
    served: &mut Option<ServedRack>,
) -> Result<Infallible, Failure> {
    let rack_dir = args.data_dir.join("rack");
    if let (Some(named), Some(rack)) = (&args.rack, rack) {
        *served = Some(start_rack(named, rack, &rack_dir).await?);
    }
    if let Some(rack) = served {
        follow_moved_files(composer, rack, &rack_dir).await?;
    }
    composer.take_up().await.map_err(refused)?;
    if let Some(rack) = served {
        add_endpoints(composer, rack, &rack_dir).await?;
    }
    composer.open_up();
    let pauses = composer.pauses().await.map_err(refused)?;
    if let Some(pause) = pauses.iter().find(|pause| pause.what == Paused::Restored) {
        say(&format!(
            "{pause}; poolwright diff shows what is different, {} accepts it",
            pause.what.resume()
        ));
    }
    let documents = composer.damage_readiness();
    let is_ready = documents.result == CheckResult::Ok;
    if !is_ready {
        let (reason, hint) = (documents.message, documents.hint.unwrap_or_default());
        say(&format!("everything is paused: {reason}; {hint}"));
    }
    match &args.tls_cert {
        Some(file) => say(&format!("certificate {}, account admin", file.display())),
        None => say(&format!("authority {}, account admin", api.ca.display())),
    }
    if args.new_admin_password {
        let file = args.data_dir.join("initial-admin-password");
        say(&format!("its password is in {}", file.display()));
    }
    let ready = match is_ready {
        true => "ready",
        false => "not ready; serving",
    };
    say(&format!("{ready} https://{}", reachable(api.address)));
    runner::run(composer.clone(), CancellationToken::new()).await;
    std::future::pending().await
}

/// However it comes to an end: requests and operations are parked, sessions at endpoints ended.
async fn stop(composer: Composer, api: ServedApi, rack: Option<ServedRack>) {
    let drained = tokio::time::timeout(DRAIN, async {
        tokio::join!(api.stop(), composer.close());
        if let Some(rack) = rack {
            rack.stop().await;
        }
    });
    if drained.await.is_err() {
        say(&format!(
            "not everything ended within {} s; the journal has what is needed to go on",
            DRAIN.as_secs()
        ));
    }
}

/// Serves the rack where it was served before, because the manager knows its endpoints by their addresses.
async fn start_rack(named: &str, rack: Rack, data_dir: &Path) -> Result<ServedRack, Failure> {
    let last = wire_up::last_address(data_dir);
    let listen = last.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let serving = RackServing {
        listen,
        data_dir: Some(data_dir.to_owned()),
        fault_control: false,
    };
    let running = wire_up::serve_rack(rack, serving).await.map_err(|failure| match last {
        Some(last) if failure.code == ExitCode::Unavailable => failure.with_hint(format!(
            "the rack comes back to {last}; end what listens there (ss -ltnp), or start with another --data-dir"
        )),
        _ => failure,
    })?;
    say(&format!(
        "emulated rack {named}: {}",
        counted(running.endpoints().len(), "endpoint")
    ));
    Ok(running)
}

/// Where the data directory was moved, or copied, the files of its rack lie elsewhere; its services are the same. To
/// be called before anything is connected.
async fn follow_moved_files(composer: &Composer, rack: &ServedRack, data_dir: &Path) -> Result<(), Failure> {
    let known = composer.endpoints().await.map_err(refused)?;
    for spec in wire_up::endpoints_of(rack, &in_full(data_dir)?) {
        let kept = known.iter().find(|endpoint| endpoint.spec.id == spec.id);
        if kept.is_some_and(|kept| kept.spec.differs_in_files_alone(&spec)) {
            tracing::info!(endpoint = %spec.id, "its files were moved with the data directory");
            composer.move_files(spec).await.map_err(refused)?;
        }
    }
    Ok(())
}

fn in_full(folder: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(folder).map_err(|error| Failure::file(folder, "found", &error))
}

/// Adds the rack's endpoints that the manager does not know yet, many at a time.
async fn add_endpoints(composer: &Composer, rack: &ServedRack, data_dir: &Path) -> Result<(), Failure> {
    let data_dir = in_full(data_dir)?;
    let known = composer.endpoints().await.map_err(refused)?;
    let mut new = Vec::new();
    for spec in wire_up::endpoints_of(rack, &data_dir) {
        match known.iter().find(|endpoint| endpoint.spec.id == spec.id) {
            None => new.push(spec),
            Some(endpoint) if endpoint.spec == spec => {}
            Some(endpoint) => {
                let difference = match endpoint.spec.url == spec.url {
                    false => format!("is at {} now, and was added as {}", spec.url, endpoint.spec.url),
                    true => "is reached with another account, or believed in another way, than it was added"
                        .to_owned(),
                };
                let message = format!("endpoint {} of the rack {difference}", spec.id);
                return Err(Failure::new(ExitCode::Conflict, message).with_hint(
                    "start with the rack that this data directory was made with, or with another --data-dir",
                ));
            }
        }
    }
    let pauses = composer.pauses().await.map_err(refused)?;
    let pause = pauses
        .iter()
        .find(|pause| matches!(pause.what, Paused::Damaged(_) | Paused::All | Paused::Restored));
    if let (Some(pause), false) = (pause, new.is_empty()) {
        // An endpoint that can't be read, or was discarded, is not a new one; and the manager must run for `resume`.
        say(&format!(
            "not added: {} of the rack; {pause}; restart the manager once nothing is paused",
            counted(new.len(), "endpoint")
        ));
        return Ok(());
    }
    let all = new.len();
    // The rack is our own, and new.
    let add = |spec| composer.add_endpoint(spec, Standing::Adopted);
    let adding = futures_util::stream::iter(new).map(add);
    let mut adding = adding.buffer_unordered(CollectOptions::default().endpoints_at_once);
    let mut added = 0;
    while let Some(tested) = adding.next().await {
        tested.map_err(refused)?;
        added += 1;
        if added % TOLD_EACH == 0 && added < all {
            say(&format!("{added} of {} added", counted(all, "endpoint")));
        }
    }
    Ok(())
}

/// An address of https, without a path.
fn address_of_manager(text: &str) -> Result<String, String> {
    let authority = text.strip_prefix("https://").unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    match !authority.is_empty() && authority.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("an address without a path is wanted, such as https://10.0.0.9:8443".to_owned()),
    }
}

/// A name that a certificate can be for.
fn name_of_server(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_name = !text.is_empty() && text.chars().all(plain);
    match is_name || text.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("a host name or an IP address is wanted, such as pool.example.com".to_owned()),
    }
}

/// An address that a client on this machine can use.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        false => address,
    }
}
