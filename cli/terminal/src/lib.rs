//! Command-line support for `poolwright` and `poolwright-agent`.
//!
//! * [`output`] is the only place that writes on stdout.
//! * [`failure`] and [`exit_code`]: errors of commands; [`stop`]: signals.
//! * [`log`]: log messages; [`manager`]: connections to a manager.

pub mod exit_code;
pub mod failure;
pub mod log;
pub mod manager;
mod misread;
mod options;
pub mod output;
pub mod stop;

pub use exit_code::ExitCode;
pub use failure::Failure;
pub use misread::refuse;
pub use options::{EveryCommand, duration, some_time};

use output::say;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

/// The result of a command.
pub type Outcome = Result<ExitCode, Failure>;

/// Logged without `-v`. A certificate that is refused is an error of the command, and told as one.
pub const USUAL_LOG: &str = "warn,rustls_platform_verifier=off";

/// Runs a command and prints its error. `log` is the filter without `-v`.
pub fn run(
    verbose: u8,
    log: &str,
    mut runtime: tokio::runtime::Builder,
    command: impl Future<Output = Outcome>,
) -> std::process::ExitCode {
    trace(verbose, log);
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a cryptography provider was installed already");
    }
    // Many endpoints take many connections; the administrator sets the hard limit.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::debug!("the limit of open files could not be raised: {error}");
    }
    let ended = runtime.enable_all().build().map_err(|error| {
        Failure::new(ExitCode::Generic, format!("no threads can be started: {error}"))
            .with_hint("check the limits of processes and memory")
    });
    let ended = ended.and_then(|runtime| {
        let ended = runtime.block_on(command);
        runtime.shutdown_background();
        ended
    });
    log::end();
    match ended {
        Ok(code) => code.into(),
        Err(failure) => {
            say(&failure.to_string());
            failure.code.into()
        }
    }
}

/// Whether stderr may have colours.
fn is_coloured() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !plain
}

/// Writes the log to stderr; `-v` adds messages.
fn trace(verbose: u8, usual: &str) {
    let usual = match verbose {
        0 => usual,
        1 => "info,hyper=warn,reqwest=warn,h2=warn,rustls=warn",
        _ => "debug,hyper=info,h2=info,rustls=info",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::Stderr)
        // Where stderr is a file on a full disk, a message is lost, and not the thread that had it to tell.
        .log_internal_errors(false)
        .with_ansi(is_coloured())
        .init();
}
