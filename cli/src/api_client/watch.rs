//! Whether a manager that gives no answer yet is at work, or hangs.
//!
//! Some requests take minutes, such as a look at all endpoints; one that hangs gives no answer for ever. So, while a
//! request is under way, its manager is asked again and again whether it lives (`/livez`): that is answered at once by
//! one that does.

use super::Manager;
use crate::output::say;
use std::time::Duration;
use tokio::time::Instant;

/// How long silence is borne.
struct Patience {
    /// Before it is asked whether it lives, and between two such questions.
    quiet: Duration,
    /// For the answer to that.
    alive: Duration,
}

/// Where another can be asked: within 15 s somebody has answered.
const SEVERAL: Patience = Patience {
    quiet: Duration::from_secs(2),
    alive: Duration::from_secs(4),
};

/// Where there is nobody else, a machine that is very busy is waited for longer.
const ALONE: Patience = Patience {
    quiet: Duration::from_secs(5),
    alive: Duration::from_secs(25),
};

/// After this time somebody who waits is told for what.
const TOLD: Duration = Duration::from_secs(15);

/// Returns, with the reason, once the manager does not say any more that it lives. It does not end before.
pub(super) async fn hangs(http: &reqwest::Client, manager: &Manager, what: &str, several: bool) -> String {
    let Patience { quiet, alive } = if several { SEVERAL } else { ALONE };
    let began = Instant::now();
    let mut told = false;
    loop {
        tokio::time::sleep(quiet).await;
        let asked = http.get(manager.livez()).timeout(alive).send().await;
        let waited = began.elapsed().as_secs();
        if let Err(error) = asked {
            return match error.is_timeout() {
                true => format!(
                    "{what} took {waited} s, and it does not say within {} s that it lives",
                    alive.as_secs()
                ),
                false => format!(
                    "{what} took {waited} s, and it can't be reached any more: {}",
                    super::causes(&error)
                ),
            };
        }
        if !told && began.elapsed() >= TOLD {
            told = true;
            say(&format!(
                "waiting for {}: it lives, and {what} takes {waited} s so far",
                manager.base()
            ));
        }
    }
}
