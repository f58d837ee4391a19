//! The `poolwright` binary: commands, output, and the wiring of drivers and stores.
//!
//! * `args` is the command line, `commands` has one module a command.
//! * `wire_up` is the only place that chooses drivers, stores and servers.
//! * `api_client` speaks to the manager, `follow` waits for its operations.
//! * `tables` has the columns of each noun; [`output`] writes them.
//! * `silence`, `drifting` and `paused` add warnings to results: silent endpoints, drift, pauses.
//! * `detach` is the check before GPUs are detached.
//! * `names` suggests names for mistyped ones.
//! * `service_failure` maps errors of the service to exit codes and hints; `access` reads the options for a connection.

mod access;
mod api_client;
mod args;
mod commands;
mod confirm;
mod detach;
mod drifting;
mod follow;
mod names;
mod paused;
mod progress;
mod service_failure;
mod silence;
mod tables;
mod wire_up;

use args::{Arguments, Command};
use clap::error::{ContextKind, ErrorKind};
use exit_code::ExitCode;
use output::{Output, say};
use poolwright_model::nearest::{did_you_mean, nearest};
use poolwright_terminal::{USUAL_LOG, exit_code, failure, output, stop};
use std::io::{self, IsTerminal};

/// Runs the command that these arguments name.
pub fn main() -> std::process::ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error).into(),
    };
    let output = Output {
        format: arguments.format(io::stdout().is_terminal()),
    };
    let Arguments { every, command } = arguments;
    let (draws, runtime) = (command.draws(), runtime(&command));
    let log = match command {
        Command::Serve(_) => &format!("{USUAL_LOG},poolwright::operation=info,poolwright::endpoint=info"),
        _ => USUAL_LOG,
    };
    poolwright_terminal::run(every.verbose, log, runtime, async {
        if !draws {
            output.refuse_picture()?;
        }
        commands::run(command, output).await
    })
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

/// Prints help, the version, or an argument error.
fn refuse(error: &clap::Error) -> ExitCode {
    let code = poolwright_terminal::refuse(error);
    if error.kind() == ErrorKind::InvalidSubcommand {
        let typed = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
        let nouns = typed.map(|typed| nearest(&typed, args::NOUNS));
        let question = did_you_mean(&nouns.unwrap_or_default());
        // Clap suggests commands; lists are suggested here.
        if question.is_some() || error.get(ContextKind::SuggestedSubcommand).is_none() {
            let question = question.map_or_else(String::new, |question| format!("{question} "));
            say(&format!(
                "hint: {question}poolwright --help lists the commands; `poolwright demo` is a good first one"
            ));
        }
    }
    code
}
