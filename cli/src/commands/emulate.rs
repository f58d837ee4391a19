//! `emulate`: a rack, or a recorded machine, as Redfish services, until it is interrupted.

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::say;
use crate::stop::stopped;
use crate::wire_up::{self, EndpointInfo, RackServing};
use clap::ArgGroup;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("what").args(["rack", "tree"]).required(true))]
pub struct EmulateArgs {
    /// Rack file, or the name of a rack that comes with Poolwright
    #[arg(long, value_name = "FILE|NAME")]
    rack: Option<String>,
    /// Recorded machine, as `poolwright endpoint record` writes it; it is shown, and can't be changed
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Address of the first endpoint; port 0 takes a free one. The others get the addresses after it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Folder for ca.pem, password and endpoints.json, and for what must outlive a restart
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Open one more address that takes faults while the rack runs
    #[arg(long, conflicts_with = "tree")]
    faults: bool,
}

const EXAMPLES: &str = "\
Examples:
  poolwright emulate --rack demo --listen 127.0.0.1:8443 --data-dir rack
  poolwright discover --endpoints rack/endpoints.json     (in another terminal)
  poolwright emulate --tree recorded/box-1 --listen 127.0.0.1:8443

Racks that come with Poolwright are in hw-profiles/racks. Account: admin; its password is in DIR/password.";

pub async fn run(args: EmulateArgs) -> Outcome {
    // Kept until the end: a folder that nobody named is gone with the emulator.
    let (data_dir, _temporary) = match args.data_dir {
        Some(dir) => (dir, None),
        None => {
            let dir = tempfile::Builder::new().prefix("poolwright-emulate-").tempdir();
            let dir = dir.map_err(|error| Failure::file(&std::env::temp_dir(), "written to", &error))?;
            (dir.path().to_owned(), Some(dir))
        }
    };
    match args.tree {
        Some(tree) => replay(&tree, args.listen, &data_dir).await,
        None => {
            emulate(
                args.rack.as_deref().unwrap_or_default(),
                args.listen,
                data_dir,
                args.faults,
            )
            .await
        }
    }
}

async fn emulate(named: &str, listen: SocketAddr, data_dir: PathBuf, fault_control: bool) -> Outcome {
    let rack = wire_up::read_rack(named)?;
    say(&format!(
        "rack {}: {}, {}, {}",
        rack.name,
        counted(rack.gpus.len(), "GPU"),
        counted(rack.boxes.len(), "GPU box"),
        counted(rack.hosts.len(), "host")
    ));
    let running = wire_up::serve_rack(
        rack,
        RackServing {
            listen,
            data_dir: Some(data_dir.clone()),
            fault_control,
        },
    )
    .await?;
    if let Some(url) = running.fault_control_url() {
        say(&format!("faults are taken at {url}"));
    }
    let stopped = stopped();
    announce(running.endpoints(), running.username(), &data_dir);
    stopped.await;
    running.stop().await;
    Ok(ExitCode::Ok)
}

async fn replay(tree: &Path, listen: SocketAddr, data_dir: &Path) -> Outcome {
    let served = wire_up::serve_recording(tree, listen, data_dir).await?;
    let stopped = stopped();
    announce(served.endpoints(), served.username(), data_dir);
    stopped.await;
    served.stop().await;
    Ok(ExitCode::Ok)
}

fn announce(endpoints: &[EndpointInfo], username: &str, data_dir: &Path) {
    let dir = data_dir.display();
    say(&format!(
        "{} listed in {dir}/endpoints.json",
        counted(endpoints.len(), "endpoint")
    ));
    say(&format!(
        "account {username}, password in {dir}/password, authority in {dir}/ca.pem"
    ));
    if let Some(first) = endpoints.first() {
        say(&format!("ready {}", first.url));
    }
}
