//! `demo`: the whole main job on an emulated rack, over real HTTPS, in half a minute; told in sentences.
//!
//! discover → size → plan → attach → recompose by the calendar → release. What the last line says of the rack
//! is counted by a second client that reads the rack itself; where it sees something else than the manager
//! says, the demonstration has failed. Only the number of operations is the manager's own.
//!
//! * [`rack`] sets the stage, [`story`] is what happens, [`night`] is the part that the calendar plays.
//! * [`day`] is the clock, [`auditor`] the second client, [`report`] what came of it.

mod auditor;
mod day;
mod night;
mod rack;
mod report;
mod story;

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Output, say};
use auditor::Auditor;
use day::DayClock;
use rack::Stage;
use report::Report;
use std::sync::Arc;
use story::Story;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Another rack: a file, or the name of one that comes with Poolwright
    #[arg(long, value_name = "FILE|NAME")]
    rack: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright demo
  poolwright demo -o json | tail -n 1
  poolwright demo --rack hw-profiles/racks/connections.toml

Needs neither hardware nor a network. The story is on stderr, the result on stdout.

Exit code 8 where a model does not fit into the rack, 1 where the second client saw something else than the \
manager says.";

pub async fn run(args: DemoArgs, output: Output) -> Outcome {
    let mut asked = std::pin::pin!(tokio::signal::ctrl_c());
    let stop = async || {
        // One that can't be waited for never comes.
        if asked.as_mut().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    play(args, output, stop).await
}

fn interrupted() -> Failure {
    Failure::new(ExitCode::Interrupted, "interrupted").with_hint("nothing is left behind")
}

/// Runs until `stop` resolves at the latest, and closes the sessions with the rack in any case.
async fn play(args: DemoArgs, output: Output, mut stop: impl AsyncFnMut()) -> Outcome {
    let began = Instant::now();
    let set = async {
        let stage = Stage::set(args.rack.as_deref()).await?;
        say(&format!(
            "Rack: {} over HTTPS on this machine, each with a password and a certificate of the rack's own authority.",
            counted(stage.rack.endpoints().len(), "Redfish service")
        ));
        let auditor = Auditor::begin(&stage.rack).await?;
        let clock = Arc::new(DayClock::at_six());
        let (composer, store) = stage.manager(clock.clone()).await?;
        Ok::<_, Failure>((stage, auditor, clock, composer, store))
    };
    let (stage, auditor, clock, composer, store) = tokio::select! {
        set = set => set?,
        () = stop() => return Err(interrupted()),
    };

    let mut story = Story::new(composer.clone(), clock, auditor);
    let told = tokio::select! {
        told = story.tell() => told,
        () = stop() => Err(interrupted()),
    };
    story.end_runner().await;
    composer.close().await;
    // Tasks of the composer may still hold it while its folder is removed.
    store.close().await;
    let told = match told {
        Ok(told) => told,
        Err(failure) => {
            // What failed says more than how often the second client looked.
            let _ = story.auditor.end().await;
            stage.rack.stop().await;
            return Err(failure);
        }
    };
    if let Err(failure) = &told.released {
        say(&format!("  not everything was let go: {}", failure.message));
    }
    let left = story.auditor.left().await?;
    if !left.gone.is_empty() {
        story.said_otherwise.push(format!(
            "{} fewer bound that were bound before",
            counted(left.gone.len(), "GPU")
        ));
    }
    let Story {
        auditor,
        said_otherwise,
        unserved,
        ..
    } = story;
    let report = Report {
        gpus: auditor.gpus(),
        hosts: auditor.hosts(),
        compositions: told.compositions,
        recompositions: told.recompositions,
        operations: told.operations,
        double_owned: auditor.double_owned().len(),
        leaked: left.leaked.len(),
        looks: auditor.looks(),
        seconds: began.elapsed().as_secs_f64(),
    };
    auditor.end().await?;
    stage.rack.stop().await;
    report.show(output)?;
    let code = judge(&report, said_otherwise, &unserved)?;
    told.released.map(|()| code)
}

/// The exit code: what the second client saw goes before everything else.
fn judge(report: &Report, said_otherwise: Vec<String>, unserved: &[String]) -> Outcome {
    let mut wrong = said_otherwise;
    if report.double_owned > 0 {
        wrong.push(format!(
            "{} with two hosts at once",
            counted(report.double_owned, "GPU")
        ));
    }
    if report.leaked > 0 {
        wrong.push(format!(
            "{} bound after everything was released",
            counted(report.leaked, "GPU")
        ));
    }
    if !wrong.is_empty() {
        return Err(Failure::new(
            ExitCode::Generic,
            format!("the second client saw: {}", wrong.join("; ")),
        )
        .with_hint("run it again with -v, and report it with what it says"));
    }
    if !unserved.is_empty() {
        return Err(Failure::new(
            ExitCode::Partial,
            format!("not everything was served: {}", unserved.join("; ")),
        )
        .with_hint("try a rack with more GPUs or more slots, such as the one without --rack"));
    }
    Ok(ExitCode::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(double_owned: usize, leaked: usize) -> Report {
        Report {
            gpus: 8,
            hosts: 1,
            compositions: Vec::new(),
            recompositions: 2,
            operations: 3,
            double_owned,
            leaked,
            looks: 10,
            seconds: 1.0,
        }
    }

    #[test]
    fn whatever_the_second_client_sees_is_told_and_fails() {
        let code = |report: &Report, otherwise: &[&str], unserved: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            match judge(report, texts(otherwise), &texts(unserved)) {
                Ok(code) => (code, String::new()),
                Err(failure) => (failure.code, failure.message),
            }
        };
        assert_eq!(code(&report(0, 0), &[], &[]).0, ExitCode::Ok);
        let (ended, message) = code(&report(1, 2), &["31 GPUs"], &["400B"]);
        assert_eq!(ended, ExitCode::Generic);
        for word in ["31 GPUs", "1 GPU with two hosts", "2 GPUs bound"] {
            assert!(message.contains(word), "{message}");
        }
        let (ended, message) = code(&report(0, 0), &[], &["400B fits nowhere"]);
        assert_eq!((ended, message.contains("400B")), (ExitCode::Partial, true));
    }
}
