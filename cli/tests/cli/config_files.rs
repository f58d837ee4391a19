//! `size` of a `config.json`.

use crate::support::run;
use serde_json::json;

#[tokio::test]
async fn a_config_of_a_model_hub_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny-llama/config.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000,
        "max_position_embeddings": 2048, "tie_word_embeddings": false,
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let answer = run(&format!("size {} -o json", file.display()))
        .await
        .expect(0, &[])
        .json();
    assert_eq!(
        (&answer["model"], &answer["params"]),
        (&json!("tiny-llama"), &json!(1_100_048_384_u64))
    );
    let of_folder = format!("size {} -o json", file.parent().unwrap().display());
    assert_eq!(run(&of_folder).await.expect(0, &[]).json(), answer);
    std::fs::write(&file, "{}").unwrap();
    run(&format!("size {}", file.display()))
        .await
        .refused(2, &["config.json"]);
    // Of a kind that is not known, but like a plain decoder.
    let mut unknown = config;
    unknown["model_type"] = json!("unlisted");
    unknown["rms_norm_eps"] = json!(1e-5);
    std::fs::write(&file, unknown.to_string()).unwrap();
    for more in ["", " --rule liqid"] {
        run(&format!("size {}{more}", file.display()))
            .await
            .expect(8, &["warning: its config.json is of a kind", "unlisted"]);
    }
}

/// Model Optimizer writes how weights are stored into a file of its own.
#[tokio::test]
async fn a_quantisation_beside_its_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let config = json!({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000,
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let beside = folder.path().join("hf_quant_config.json");
    let quantised = json!({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}});
    std::fs::write(&beside, quantised.to_string()).unwrap();
    let size = format!("size {}", file.display());
    run(&size).await.expect(0, &["infer fp8"]);
    std::fs::write(&beside, "{}").unwrap();
    run(&size).await.refused(2, &["quant_algo is missing"]);
    run(&format!("{size} --weights fp8"))
        .await
        .expect(0, &["infer fp8"]);
    std::fs::write(&beside, r#"{"quantization": {"quant_algo": null}}"#).unwrap();
    run(&size).await.expect(0, &["infer bf16"]);
}

#[tokio::test]
async fn all_settings_have_their_values() {
    let listed = run("size --list settings").await;
    let line = |name: &str| {
        listed
            .out
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("engine").contains("vllm-0.22"), "{}", line("engine"));
    assert!(
        line("frozen").ends_with("nf4, nf4-dq, int8, gptq-int4, gptq-int8"),
        "{}",
        line("frozen")
    );
    let listed = run("size --list settings -o json").await.expect(0, &[]).json();
    for (name, setting) in listed.as_object().unwrap() {
        assert!(!setting["values"].as_str().unwrap().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_table_without_a_case_that_is_sized() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.csv");
    std::fs::write(&file, "id,model,task\na,Qwen2.5-7B,infer\n").unwrap();
    run(&format!("size --batch {}", file.display()))
        .await
        .expect(8, &["a,,,mlp is empty"]);
}
