//! One module a command: its arguments, and what it does. Each ends with an exit code or a [`Failure`].

pub mod account;
pub mod attach;
pub mod audit;
pub mod backup;
pub mod capacity;
pub mod compose;
mod declare;
pub mod demand;
pub mod demo;
pub mod describe;
pub mod diff;
pub mod discover;
pub mod doctor;
pub mod emulate;
pub mod endpoint;
pub mod forecast;
pub mod get;
pub mod gpu;
pub mod host;
pub mod limits;
pub mod number;
pub mod ops;
pub mod pause;
pub mod plan;
pub mod queue;
pub mod release;
pub mod schedule;
pub mod serve;
pub mod simulate;
pub mod size;
pub mod tenant;
pub mod uplink;
pub mod why;

mod change;
mod model_file;
mod removed;
mod wanted;
mod written;

use crate::args::Command;
use crate::output::Output;

/// How a command ended.
pub use poolwright_terminal::Outcome;

/// Runs a command.
pub async fn run(command: Command, output: Output) -> Outcome {
    match command {
        Command::Demo(args) => demo::run(args, output).await,
        Command::Emulate(args) => emulate::run(args).await,
        Command::Discover(args) => discover::run(args, output).await,
        Command::Size(args) => size::run(&args, output),
        Command::Simulate(args) => simulate::run(&args, output),
        Command::Capacity(args) => capacity::run(args, output).await,
        Command::Forecast(args) => forecast::run(args, output).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Get(args) => get::run(args, output).await,
        Command::Describe(args) => describe::run(args, output).await,
        Command::Compose(args) => compose::run(args, output).await,
        Command::Release(args) => release::run(args, output).await,
        Command::Attach(args) => attach::attach(args, output).await,
        Command::Detach(args) => attach::detach(args, output).await,
        Command::Move(args) => attach::move_to(args, output).await,
        Command::Demand(args) => demand::run(args, output).await,
        Command::Queue(args) => queue::run(args, output).await,
        Command::Gpu(args) => gpu::run(args, output).await,
        Command::Tenant(args) => tenant::run(args, output).await,
        Command::Uplink(args) => uplink::run(args, output).await,
        Command::Plan(args) => plan::plan(args, output).await,
        Command::Apply(args) => plan::apply(args, output).await,
        Command::Schedule(args) => schedule::run(args, output).await,
        Command::Ops(args) => ops::run(args, output).await,
        Command::Pause(args) => pause::pause(args, output).await,
        Command::Resume(args) => pause::resume(args, output).await,
        Command::Host(args) => host::run(args, output).await,
        Command::Limits(args) => limits::run(args, output).await,
        Command::Endpoint(args) => endpoint::run(args, output).await,
        Command::Diff(args) => diff::run(args, output).await,
        Command::Why(args) => why::run(args, output).await,
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Account(args) => account::run(args, output).await,
        Command::Audit(args) => audit::run(args, output).await,
        Command::Agent(args) => poolwright_agent::commands::run(&args, output).await,
        Command::Doctor(args) => doctor::run(args, output).await,
    }
}
