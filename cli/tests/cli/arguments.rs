//! Help, and what is wrong with a command line.

use crate::support::{run, run_in, run_with};

const COMMANDS: &[&str] = &[
    "demo",
    "emulate",
    "discover",
    "size",
    "serve",
    "get",
    "describe",
    "compose",
    "release",
    "attach",
    "detach",
    "move",
    "pause",
    "resume",
    "diff",
    "backup",
    "restore",
    "endpoint adopt",
    "demand add",
    "demand remove",
    "demand list",
    "plan",
    "apply",
    "schedule add",
    "schedule list",
    "schedule show",
    "schedule pause",
    "schedule resume",
    "schedule remove",
    "schedule runs",
    "ops list",
    "ops show",
    "ops wait",
    "ops cancel",
    "ops resolve",
    "endpoint add",
    "endpoint list",
    "endpoint test",
    "endpoint remove",
    "endpoint record",
    "endpoint qualify",
    "why",
    "audit",
    "audit verify",
    "doctor",
];

#[tokio::test]
async fn every_command_helps_with_an_example() {
    for command in COMMANDS {
        let help = run(&format!("{command} --help"))
            .await
            .expect(0, &["Usage: poolwright", "Example"]);
        let name = format!("  poolwright {}", command.split(' ').next().unwrap());
        assert!(help.out.contains(&name), "{command}: {}", help.out);
        // What every command takes stands by itself, not between the command's own options.
        let common = help.out.split("\nEvery command:\n").nth(1);
        let common = common.unwrap_or_else(|| panic!("{command}: {}", help.out));
        assert!(
            common.contains("--output") && common.contains("--verbose"),
            "{command}"
        );
        assert_eq!(help.err, "", "{command}");
    }
}

#[tokio::test]
async fn help_lists_every_command() {
    let help = run("--help").await.expect(
        0,
        &[
            "Exit codes",
            "POOLWRIGHT_SERVER",
            "POOLWRIGHT_CA",
            "POOLWRIGHT_PASSWORD_FILE",
        ],
    );
    for command in COMMANDS {
        let first = command.split(' ').next().unwrap();
        assert!(
            help.out.contains(&format!("\n  {first} ")),
            "{first}: {}",
            help.out
        );
    }
    run("--version").await.expect(0, &["poolwright 0."]);
}

#[tokio::test]
async fn a_command_that_is_not_there_is_refused_with_a_suggestion() {
    run("foo")
        .await
        .refused(2, &["'foo'", "poolwright --help", "poolwright demo"]);
    run("discver").await.refused(2, &["'discver'", "'discover'"]);
    run("get gpuss").await.refused(2, &["gpuss", "gpus"]);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    run("discover").await.refused(2, &["--endpoint"]);
    run("size 8B --task dance")
        .await
        .refused(2, &["dance", "infer, full, lora"]);
    run("size 8B -o xml")
        .await
        .refused(2, &["xml", "table, json, csv"]);
    run("emulate --rack demo --listen here")
        .await
        .refused(2, &["here"]);
    run("discover --endpoint https://127.0.0.1 --username admin")
        .await
        .refused(2, &["--password-file"]);
    run("discover --endpoint https://127.0.0.1 --ca a.pem --insecure-tls")
        .await
        .refused(2, &["--insecure-tls"]);
    run("compose 8B --gpus 4").await.refused(2, &["--gpus"]);
    for command in ["compose", "demand add web"] {
        run(command).await.refused(
            2,
            &["<MODEL|CONFIG.json|--phases <RUN.toml>|--gpus <N>>", "required"],
        );
    }
    run("gpuss").await.refused(2, &["did you mean gpus?"]);
    run("emulate --rack demoo")
        .await
        .refused(3, &["did you mean demo?", "small"]);
    run("ops wait op-1 --timeout soon")
        .await
        .refused(2, &["soon", "90s"]);
    run("compose --gpus 1 --deadline 0s")
        .await
        .refused(2, &["--deadline", "no time at all", "90s"]);
    run_with(["attach", "a b", "--host", "h"])
        .await
        .refused(2, &["a b", "without spaces"]);
}

#[tokio::test]
async fn without_a_password_the_manager_is_not_asked() {
    run("get gpus")
        .await
        .refused(2, &["--password-file", "initial-admin-password"]);
    run("gpus").await.refused(2, &["--password-file"]);
}

#[tokio::test]
async fn what_the_environment_sets_is_not_told_as_if_it_had_to_be_typed() {
    let set = [
        ("POOLWRIGHT_SERVER", "https://127.0.0.1:1"),
        ("POOLWRIGHT_CA", "ca.pem"),
        ("POOLWRIGHT_USERNAME", "admin"),
        ("POOLWRIGHT_PASSWORD_FILE", "pw"),
    ];
    for line in ["ops show", "demand remove", "release --yes"] {
        let ran = run_in(line, &set).await.expect(2, &["Usage: poolwright"]);
        for option in ["--server", "--ca ", "--username", "--password-file"] {
            let usage = ran.err.split("Usage: ").nth(1).unwrap();
            assert!(!usage.contains(option), "{line}: {ran:?}");
        }
    }
}
