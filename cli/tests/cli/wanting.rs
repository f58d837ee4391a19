//! What a demand may say: a model's file, settings, phases; and what it is sized with.

use crate::support::{Manager, Rack, run};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const RUN: &str = r#"
model = "ours/config.json"

[[phase]]
kind = "main"
hours = 2
gpus = 4
set = { optimizer = "adamw_8bit" }

[[phase]]
kind = "evaluation"
hours = 1
"#;

/// A folder with a model's file, and a run of it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("ours")).unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "tie_word_embeddings": false,
    });
    std::fs::write(folder.path().join("ours/config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("run.toml"), RUN).unwrap();
    folder
}

fn at(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

async fn manager(data_dir: &Path, more: &[&str]) -> Manager {
    Manager::start(data_dir, &[&["--rack", "demo"], more].concat()).await
}

#[tokio::test]
async fn a_run_of_a_models_file_is_a_demand_whose_need_changes() {
    let (folder, data) = (folder(), tempfile::tempdir().unwrap());
    let manager = manager(data.path(), &[]).await;
    let (config, run_file) = (at(&folder, "ours/config.json"), at(&folder, "run.toml"));
    let add = format!("demand add pretrain --phases {run_file} --kind h100-pcie-80gb");
    let later = manager
        .run(&format!("{add} --start 2099-12-01T20:00:00Z -o json"))
        .await;
    let later = later.expect(0, &["from 2099-12-01 ", " to 2099-12-0"]).json();
    let windows = later["course"]["windows"].as_array().unwrap();
    let best = |window: &Value| window["need"]["alternatives"][0]["count"].clone();
    assert_eq!(windows.iter().map(best).collect::<Vec<_>>(), [4, 1], "{later}");
    assert_eq!(windows[0]["phase"], "main");
    assert!(
        later["demand"]["need"]["label"]
            .as_str()
            .unwrap()
            .starts_with("main: ours "),
        "{later}"
    );
    // The file itself went along, and sizing by hand comes to the same.
    assert_eq!(later["spec"]["config"]["hidden_size"], 4096);
    let by_hand = run(&format!(
        "size --phases {run_file} --kind h100-pcie-80gb --host-slots 8 -o json"
    ))
    .await
    .json();
    for (window, phase) in windows.iter().zip(by_hand["phases"].as_array().unwrap()) {
        assert_eq!((best(window), &window["end_s"]), (best(phase), &phase["end_s"]));
    }
    manager.run("demand list").await.expect(0, &["main, evaluation"]);
    manager.run("why pretrain").await.expect(
        0,
        &["its first phase begins at 2099-12-01", "no phase of it is on"],
    );

    // Its first phase now.
    manager
        .run(&format!(
            "compose --phases {run_file} --kind h100-pcie-80gb --name now"
        ))
        .await
        .expect(0, &["4 GPUs"]);
    manager.run("why now").await.expect(0, &["phase main until"]);
    // The model alone, with its settings; how to start it is told.
    let tune =
        format!("compose {config} --task lora --micro-batch 2 --set recompute=none --name tune --dry-run");
    manager.run(&tune).await.expect(0, &["dry run"]);
    let serve = format!("compose {config} --kind h100-pcie-80gb --name chat --dry-run");
    manager.run(&serve).await.expect(0, &["--gpu-memory-utilization"]);

    for (line, says) in [
        (format!("{add} --task full"), "has phases, and task"),
        (format!("compose --phases {run_file} --gpus 4"), "--gpus"),
        (
            "compose 8B --start 2099-12-01T20:00:00Z".to_owned(),
            "has starts, and no phase",
        ),
        (
            format!("compose {config} --task full --set rank=8"),
            "\"rank\"; allowed: for full",
        ),
        (format!("compose {config} --set engine"), "NAME=VALUE"),
        (format!("compose {run_file}"), "expected"),
    ] {
        manager.run(&line).await.refused(2, &[says]);
    }
}

#[tokio::test]
async fn a_manager_says_what_it_is_calibrated_by() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = at(&folder, "here.json");
    let measured = json!({"corrections": [{
        "framework": "vllm-0.11", "constant": "engine-alone", "rows": 4, "error_before": 5.0, "error_after": 1.0,
        "change": {"middle": 6.1, "safe": 12.8},
    }]});
    std::fs::write(&file, measured.to_string()).unwrap();
    let manager = manager(data.path(), &["--calibration", &file]).await;
    let says = format!("engine-alone +6.100 GiB (safe +12.800 GiB), from 4 rows, in {file}");
    let line = "compose 8B --task infer --kind h100-pcie-80gb --name chat";
    manager.run(line).await.expect(0, &[&says]);
    manager.run("why chat --explain").await.expect(0, &[&says]);

    std::fs::write(&file, measured.to_string().replace("6.1", "610.0")).unwrap();
    let other = tempfile::tempdir().unwrap();
    let line = format!("serve --data-dir {} --calibration {file}", other.path().display());
    run(&line)
        .await
        .refused(2, &["out of the limits", "size calibrate"]);
}

/// What a look saw, in a file, is sized for: its kinds, its numbers, and what joins them.
#[tokio::test]
async fn a_saved_look_at_a_pool_is_what_is_sized_for() {
    let rack = Rack::start("demo").await;
    let (pool, none) = (
        rack.folder.path().join("pool.json"),
        rack.folder.path().join("none.json"),
    );
    let look = format!("discover --endpoints {} -o json", rack.file("endpoints.json"));
    std::fs::write(&pool, run(&look).await.expect(0, &[]).out).unwrap();
    std::fs::write(&none, "{}").unwrap();
    let line = format!("size 405B --weights fp8 --all --pool {}", pool.display());
    let answer = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    let sets = answer["sets"].as_array().unwrap();
    let kinds = |set: &Value| set["kind"].as_str().unwrap().to_owned();
    assert!(
        sets.iter()
            .all(|set| ["h100-pcie-80gb", "l40s-48gb", "a100-pcie-80gb"].contains(&kinds(set).as_str())),
        "{answer}"
    );
    run(&format!("{line} --kind t4-16gb"))
        .await
        .refused(3, &["no such GPU"]);
    run(&format!("size 8B --pool {}", none.display()))
        .await
        .refused(2, &["is no snapshot", "discover"]);
}
