//! A manager whose data directory can't be written to.

use crate::support::Manager;
use crate::unwritable::Unwritable;
use std::process::Command;

/// The largest file that the manager may write from now on.
fn limit(manager: &Manager, bytes: &str) {
    let pid = manager.server.pid().to_string();
    let set = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--fsize={bytes}:")])
        .status();
    assert!(set.unwrap().success());
}

/// Fault 55: the real program, whose files can not grow.
#[tokio::test]
async fn what_can_not_be_written_is_refused_and_all_goes_on_once_it_can() {
    let story = Unwritable::new().await;
    // Its messages go to a file, which can't grow either.
    let log = story.folder.path().join("log");
    let manager = Manager::start_logging(story.folder.path(), &log).await;
    story.compose_first(&manager).await;

    limit(&manager, "1");
    story.nothing_is_changed(&manager).await;

    limit(&manager, "unlimited");
    story.goes_on(manager).await;
}
