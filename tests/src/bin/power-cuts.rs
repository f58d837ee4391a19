//! Power cuts on the store of a real manager; see `poolwright_tests::power`.

use clap::Parser;
use poolwright_tests::power::disk::Lie;
use poolwright_tests::power::{Failed, campaign, recording, session};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Records a manager at work, cuts its power at random moments, and looks for all that was acknowledged by then.
///
/// The last line is JSON. The exit status is 1 if anything was lost or torn; with --lie, if nothing was.
#[derive(Parser)]
#[command(
    name = "power-cuts",
    after_help = "Examples:\n  power-cuts --cuts 1000\n  power-cuts --recording kept --seed 4711 --cuts 1     one cut again\n  power-cuts --lie files                               a disk that pretends to flush must be found out"
)]
struct Arguments {
    #[arg(long, default_value_t = 20)]
    cuts: u64,
    /// Of the first cut; the next one has the next seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Flushes that the disk only pretends to do: something must then be lost.
    #[arg(long)]
    lie: Option<Lie>,
    /// Keeps the recording in this folder, or uses the one that is there.
    #[arg(long, value_name = "DIR")]
    recording: Option<PathBuf>,
    /// What is recorded: one life of a manager.
    #[arg(long, hide = true, num_args = 2, value_names = ["ROOT", "NTH"])]
    session: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.session {
        Some(session) => work(session).map(|()| true),
        None => cut(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("power-cuts: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(session: &[String]) -> Result<(), Failed> {
    let [root, nth] = session else {
        return Err("--session ROOT NTH".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(session::run(root.as_ref(), nth.parse()?))
}

fn cut(arguments: &Arguments) -> Result<bool, Failed> {
    let made = tempfile::tempdir()?;
    let folder = arguments.recording.as_deref().unwrap_or(made.path());
    let own = std::env::current_exe()?;
    let recording = recording::record(folder, || {
        let mut command = Command::new(&own);
        command.arg("--session");
        command
    })?;
    eprintln!(
        "{} calls on files recorded, {} acknowledgements",
        recording.records.len(),
        recording.acknowledged.len()
    );
    let report = campaign::run(&recording, arguments.seed, arguments.cuts, arguments.lie)?;
    for failure in &report.failures {
        eprintln!("{failure}");
    }
    // Whoever reads may have gone.
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?);
    let wrong = report.lost + report.torn > 0;
    Ok(wrong == arguments.lie.is_some())
}
