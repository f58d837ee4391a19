//! The `poolwright` binary: commands, output, and the wiring of drivers and stores.
//!
//! * [`args`] is the command line, [`commands`] has one module a command.
//! * [`wire_up`] is the only place that names concrete drivers, stores and servers.
//! * [`api_client`] speaks to the manager, [`follow`] waits for its operations.
//! * [`output`] is the only place that writes on stdout; [`tables`] says what is shown of each noun.
//! * [`silence`], [`drifting`] and [`paused`] say beside what is shown what does not answer, what is not as recorded,
//!   and what is paused.
//! * [`detach`] is the check before GPUs are detached, [`log`] writes log messages.
//! * [`names`] says what a mistyped name may have meant.
//! * [`failure`] and [`exit_code`] are how a command fails, [`stop`] is how it is interrupted, [`access`] is how
//!   services are reached.

mod access;
mod api_client;
mod args;
mod commands;
mod confirm;
mod detach;
mod drifting;
mod exit_code;
mod failure;
mod follow;
mod log;
mod misread;
mod names;
mod output;
mod paused;
mod progress;
mod silence;
mod stop;
mod tables;
mod wire_up;

use args::Command;
use clap::error::{ContextKind, ErrorKind};
use exit_code::ExitCode;
use failure::Failure;
use output::{Output, say};
use poolwright_model::nearest::{did_you_mean, nearest};
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

fn main() -> std::process::ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error).into(),
    };
    let format = arguments.format(io::stdout().is_terminal());
    if format.is_picture() && !arguments.command.draws() {
        let failure = output::no_picture();
        say(&failure.to_string());
        return failure.code.into();
    }
    trace(arguments.every.verbose, &arguments.command);
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a cryptography provider was installed already");
    }
    // Many endpoints take many connections; the hard limit is the administrator's word.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::debug!("the limit of open files could not be raised: {error}");
    }
    let ended = runtime(&arguments.command).enable_all().build().map_err(|error| {
        Failure::new(ExitCode::Generic, format!("no threads can be started: {error}"))
            .with_hint("check the limits of processes and memory")
    });
    let ended = ended.and_then(|runtime| {
        let ended = runtime.block_on(commands::run(arguments.command, Output { format }));
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

/// Servers use all cores, and a planner needs a second thread to receive an interrupt. A command that asks and prints
/// is faster, and takes a third less work, on one thread.
fn runtime(command: &Command) -> tokio::runtime::Builder {
    match command {
        Command::Demo(_) | Command::Emulate(_) | Command::Plan(_) | Command::Serve(_) => {
            tokio::runtime::Builder::new_multi_thread()
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    }
}

/// Help, the version, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    match misread::told(error, is_coloured()) {
        Some(text) => say(text.trim_end()),
        // A closed stream leaves no place to report a failure.
        None => drop(error.print()),
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let typed = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
        let nouns = typed.map(|typed| nearest(&typed, args::NOUNS));
        let question = did_you_mean(&nouns.unwrap_or_default());
        // A command that is meant is named by clap; a list that is meant is named here.
        if question.is_some() || error.get(ContextKind::SuggestedSubcommand).is_none() {
            let question = question.map_or_else(String::new, |question| format!("{question} "));
            say(&format!(
                "hint: {question}poolwright --help lists the commands; `poolwright demo` is a good first one"
            ));
        }
    }
    if error.kind() == ErrorKind::UnknownArgument {
        let typed = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let number = typed.and_then(|typed| typed.strip_prefix('-')?.chars().next());
        // What reads as an option is a figure with a sign, such as a model of -5B, or a limit of -1s.
        if number.is_some_and(|first| first.is_ascii_digit()) {
            say(
                "hint: sizes, counts and times have no sign: allowed are those without, such as 5B, 8 or 90s",
            );
        }
    }
    match error.use_stderr() {
        true => ExitCode::Usage,
        false => ExitCode::Ok,
    }
}

/// Whether stderr may have colours.
fn is_coloured() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !plain
}

/// Writes the log to stderr: warnings, and more with -v. A manager also logs each operation, and each endpoint that is
/// lost or recovered.
fn trace(verbose: u8, command: &Command) {
    let usual = match verbose {
        // What is wrong with a certificate is our own error to tell.
        0 if matches!(command, Command::Serve(_)) => {
            "warn,poolwright::operation=info,poolwright::endpoint=info,rustls_platform_verifier=off"
        }
        0 => "warn,rustls_platform_verifier=off",
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
