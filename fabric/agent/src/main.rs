//! The `poolwright-agent` binary: the agent of a host, without the manager.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use poolwright_agent::commands::{self, AgentArgs};
use poolwright_terminal::output::{Format, Output};
use poolwright_terminal::{EveryCommand, USUAL_LOG, refuse, run};
use tokio::runtime::Builder;

/// The agent of a GPU host. `poolwright agent` is the same.
#[derive(Debug, Parser)]
#[command(name = "poolwright-agent", version)]
struct Arguments {
    #[command(flatten)]
    every: EveryCommand,
    #[command(flatten)]
    agent: AgentArgs,
}

fn main() -> std::process::ExitCode {
    let forms = [Format::Table, Format::Json, Format::Csv];
    let names = forms.iter().filter_map(Format::to_possible_value);
    let parser = PossibleValuesParser::new(names).try_map(|name| Format::from_str(&name, false));
    // No command of the agent has a picture.
    let command = Arguments::command().mut_arg("output", |output| {
        output
            .value_parser(parser)
            .help("How results are written: table if left out")
    });
    let read = command.try_get_matches();
    let Arguments { every, agent } = match read.and_then(|read| Arguments::from_arg_matches(&read)) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error).into(),
    };
    let output = Output {
        format: every.output.unwrap_or(Format::Table),
    };
    run(
        every.verbose,
        USUAL_LOG,
        Builder::new_current_thread(),
        commands::run(&agent, output),
    )
}
