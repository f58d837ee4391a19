//! The `poolwright-agent` binary: the agent of a host, without the manager.

use clap::Parser;
use poolwright_agent::commands::{self, AgentArgs};
use poolwright_terminal::output::{Format, Output};
use poolwright_terminal::{EveryCommand, USUAL_LOG, run};
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
    let Arguments { every, agent } = Arguments::parse();
    let output = Output {
        format: every.output.unwrap_or(Format::Table),
    };
    run(every.verbose, USUAL_LOG, Builder::new_current_thread(), async {
        output.refuse_picture()?;
        commands::run(&agent, output).await
    })
}
