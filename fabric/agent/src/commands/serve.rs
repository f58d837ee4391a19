//! `agent serve`: answers the manager that this host's agent was enrolled at.

use super::Host;
use crate::folder::Folder;
use crate::serve::{Options, serve as begin};
use poolwright_terminal::output::say;
use poolwright_terminal::stop::stopped;
use poolwright_terminal::{ExitCode, Failure, Outcome};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Folder with the agent's key and certificate
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/poolwright-agent")]
    dir: PathBuf,
    /// Address and port to listen at
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8444")]
    listen: SocketAddr,
    #[command(flatten)]
    host: Host,
}

const EXAMPLES: &str = "\
Examples:
  sudo poolwright-agent serve
  sudo poolwright-agent serve --dir /var/lib/poolwright-agent --listen 10.0.0.7:8444

It serves nobody but the manager whose authority signed its certificate, and runs until SIGTERM or Ctrl-C. It has to run as \
root to see who uses a GPU and to make its driver let go.";

pub async fn serve(args: &ServeArgs) -> Outcome {
    let root = args.host.root()?.to_owned();
    let failed = |what: String| Failure::new(ExitCode::Unavailable, what);
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| failed(format!("can't listen at {}: {error}", args.listen)))?;
    let folder = Folder::at(&args.dir);
    let options = Options {
        root,
        folder,
        driver: None,
    };
    let agent = begin(listener, options).await.map_err(|error| {
        failed(format!("the agent can't serve: {error}"))
            .with_hint("its key and certificate come into that folder when it is enrolled: docs/HOSTS.md")
    })?;
    let stopped = stopped();
    say(&format!("the agent listens at {}", agent.address));
    stopped.await;
    agent.stop().await;
    Ok(ExitCode::Ok)
}
