//! `doctor`: looks at everything that an operator should know.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::tables;
use poolwright_service::{Check, CheckResult};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  poolwright doctor\n  poolwright doctor -o json\n\nExit code 1 where there is a problem."
)]
pub struct DoctorArgs {
    #[command(flatten)]
    manager: ManagerArgs,
}

/// So often it is said what is waited for.
const TOLD_EACH: Duration = Duration::from_secs(5);

pub async fn run(args: DoctorArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let checks = examined(&api).await.map_err(not_examined)?;
    let table = tables::checks(&checks);
    output.show_as(&checks, &table, |width| match width {
        Some(_) => table.render(width),
        None => tables::checks_in_lines(&checks),
    })?;
    let problem = checks.iter().any(|check| check.result == CheckResult::Problem);
    Ok(if problem { ExitCode::Generic } else { ExitCode::Ok })
}

/// Every endpoint is looked at anew, and one that hangs is waited for: whoever waits is told for what.
async fn examined(api: &Api) -> Result<Vec<Check>, Failure> {
    let (begun, mut told) = (Instant::now(), interval_at(Instant::now() + TOLD_EACH, TOLD_EACH));
    told.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let path = ["doctor"];
    let mut asked = std::pin::pin!(api.get(&path));
    loop {
        tokio::select! {
            biased;
            answered = &mut asked => return answered,
            _ = told.tick() => say(&format!(
                "looking at every endpoint for {} s so far; one of them is slow to answer",
                begun.elapsed().as_secs()
            )),
        }
    }
}

/// The usual advice would be to ask the doctor.
fn not_examined(failure: Failure) -> Failure {
    match &failure.hint {
        Some(hint) if hint.contains("see poolwright doctor") => {
            failure.with_hint("see what its log says, and /readyz of the manager; then try again")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::{ErrorCode, ServiceError};

    #[test]
    fn whoever_asks_the_doctor_is_not_sent_to_the_doctor() {
        let away = ServiceError::new(ErrorCode::Unavailable, "the database does not answer");
        let usual = crate::service_failure::refused(away);
        assert!(usual.to_string().contains("see poolwright doctor"), "{usual}");
        let told = not_examined(usual).to_string();
        assert!(
            !told.contains("poolwright doctor") && told.contains("/readyz"),
            "{told}"
        );
        let hinted = Failure::new(ExitCode::Generic, "no").with_hint("do this");
        assert!(not_examined(hinted).to_string().contains("do this"));
    }
}
