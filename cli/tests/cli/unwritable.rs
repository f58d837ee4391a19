//! What a manager does whose commits fail: nothing is changed, all is read as before, and it goes on once they succeed.

use crate::support::{Manager, Rack};
use tempfile::TempDir;

/// A rack, and where the manager keeps what it knows of it.
pub struct Unwritable {
    pub rack: Rack,
    pub folder: TempDir,
}

impl Unwritable {
    pub async fn new() -> Self {
        Self {
            rack: Rack::start("zones").await,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The first composition, while it can be written to.
    pub async fn compose_first(&self, manager: &Manager) {
        manager.adopt(&self.rack).await;
        compose(manager, "web").await;
    }

    /// While it can't.
    pub async fn nothing_is_changed(&self, manager: &Manager) {
        let bound = self.rack.bindings();
        for change in ["compose --gpus 1 --name more", "release web --yes"] {
            manager
                .run(change)
                .await
                .refused(10, &["the store can't be used", "nothing was changed"]);
        }
        for list in ["gpus", "compositions", "demands", "ops"] {
            let told = manager.run(&format!("get {list} -o json")).await.expect(0, &[]);
            assert!(!told.json().as_array().unwrap().is_empty(), "{told:?}");
        }
        assert_eq!(self.rack.bindings(), bound, "nothing is done without a commit");
    }

    /// Once it can again; what was written is there after a kill.
    pub async fn goes_on(&self, manager: Manager) {
        let bound = self.rack.bindings().len();
        compose(&manager, "more").await;
        assert_eq!(self.rack.bindings().len(), bound + 1);
        manager.server.kill().await;
        let manager = Manager::start(self.folder.path(), &[]).await;
        let kept = manager.run("get compositions -o json").await.json();
        assert_eq!(kept.as_array().unwrap().len(), 2);
    }
}

async fn compose(manager: &Manager, name: &str) {
    manager
        .run(&format!("compose --gpus 1 --name {name}"))
        .await
        .expect(0, &["done"]);
}
