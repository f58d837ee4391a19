//! What the manager itself costs, on an emulated rack in the same process whose endpoints answer at once: one attach
//! after the other, many at a time, and a thousand in flight. `tests/bench/operations` runs it.
//!
//! The manager is the real one, on the real store in a file. Each figure stands beside its floor, measured in the
//! same run: what the store alone needs for a commit, and how many it does in a second.

mod figures;
mod floor;
mod measures;
mod metered;
mod pool;

use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures attaches on an emulated rack without delay. The last line is JSON.
#[derive(Parser)]
#[command(name = "bench-operations")]
pub struct Arguments {
    /// Boxes of 32 GPUs, each with 8 hosts
    #[arg(long, default_value_t = 32)]
    boxes: usize,
    /// Attaches one after the other
    #[arg(long, default_value_t = 500)]
    single: usize,
    /// Attaches by clients at the same time
    #[arg(long, default_value_t = 1000)]
    sustained: usize,
    /// Clients at the same time
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Operations in flight
    #[arg(long, default_value_t = 1000)]
    in_flight: usize,
    /// Where the stores are; a folder on the disk that is to be measured
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let measured = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failed::from)
        .and_then(|runtime| runtime.block_on(measures::all(&arguments)));
    match measured {
        Ok(report) => {
            // Whoever reads may have gone.
            let _ = writeln!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-operations: {error}");
            ExitCode::FAILURE
        }
    }
}
