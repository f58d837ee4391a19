//! `serve --hooks`: what the manager's own file names is run when what is lent is called back.

use crate::support::{Manager, run};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// A program that writes down what it was told.
fn program(folder: &Path) -> String {
    let file = folder.join("hook.sh");
    let told = folder.join("told");
    let line = "$1 $POOLWRIGHT_OCCASION $POOLWRIGHT_SCHEDULE $POOLWRIGHT_ATTEMPT $POOLWRIGHT_BORROWERS $POOLWRIGHT_LENDERS";
    let script = format!("#!/bin/sh\necho \"{line}\" >> {}\n", told.display());
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_hooks_of_the_managers_file_are_run_before_what_was_lent_is_taken_back() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (hooks, program) = (folder.path().join("hooks.toml"), program(folder.path()));
    std::fs::write(
        &hooks,
        format!("tell = [{program:?}, \"told\"]\nsave = [{program:?}, \"saved\"]\n"),
    )
    .unwrap();
    let options = ["--rack", "demo", "--hooks", hooks.to_str().unwrap()];
    let manager = Manager::start(data.path(), &options).await;
    manager
        .run("compose --gpus 4 --kind h100-pcie-80gb --name chat")
        .await
        .expect(0, &[]);
    // The run ends with the checkpoint, long before its limit.
    let add = "schedule add nights --gpus 24 --kind h100-pcie-80gb --suspends chat --notice 1s --checkpoint save \
        --checkpoint-limit 60s --opens 0_3_1_1_* --closes 0_4_1_1_* --notify";
    let add = |notify: &str| {
        let words = add.split_whitespace().chain([notify]);
        words.map(|word| word.replace('_', " ")).collect::<Vec<_>>()
    };
    let unknown = add("shout");
    manager
        .run_with(unknown.iter().map(String::as_str))
        .await
        .refused(2, &["hook shout", "known: save, tell"]);
    let known = add("tell");
    manager
        .run_with(known.iter().map(String::as_str))
        .await
        .expect(0, &[]);
    manager.run("schedule run nights --for 66s").await.refused(
        2,
        &["4 GPUs to detach: ", "demand chat", "use NOT checked", "--yes"],
    );
    manager
        .run("schedule run nights --for 66s --yes --max-detach 3")
        .await
        .refused(5, &["4 GPUs would be detached"]);
    manager
        .run("schedule run nights --for 66s --yes")
        .await
        .expect(0, &["it runs until"]);

    let mut runs = String::new();
    for _ in 0..600 {
        runs = manager
            .run("schedule runs nights -o csv")
            .await
            .expect(0, &[])
            .out;
        if runs.contains("is back after") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        runs.contains("is back after") && runs.contains("hook tell: it ended with 0"),
        "{runs}"
    );
    let told = std::fs::read_to_string(folder.path().join("told")).unwrap();
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            "told notice nights 1 nights chat",
            "saved checkpoint nights 1 nights chat"
        ]
    );
    manager.run("get compositions -o csv").await.expect(0, &["chat"]);
}

#[tokio::test]
async fn a_file_of_hooks_that_can_t_be_right_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (data, hooks) = (folder.path().join("data"), folder.path().join("hooks.toml"));
    let serve = format!(
        "serve --data-dir {} --rack demo --hooks {}",
        data.display(),
        hooks.display()
    );
    for (text, says) in [
        ("save = [\"save\"]", "absolute path"),
        ("save = \"/bin/save --all\"", "save"),
        ("save = []", "save"),
    ] {
        std::fs::write(&hooks, text).unwrap();
        run(&serve).await.refused(2, &[says]);
    }
}
