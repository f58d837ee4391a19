//! `size`, which needs nothing but itself.

use crate::support::run;
use serde_json::json;

#[tokio::test]
async fn a_model_is_sized_with_its_breakdown_and_its_sets() {
    let answer = run("size 70B --task infer -o json").await.expect(0, &[]).json();
    let (safe, point) = (
        answer["safe_bytes_per_gpu"].as_u64().unwrap(),
        answer["bytes_per_gpu"].as_u64().unwrap(),
    );
    assert!(safe >= point && point > 0);
    let terms: u64 = answer["terms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|term| term["point"].as_u64().unwrap())
        .sum();
    assert_eq!(terms, point, "the terms add up");
    let sets = answer["sets"].as_array().unwrap();
    let h100 = sets.iter().find(|set| set["kind"] == "h100-sxm5-80gb").unwrap();
    assert_eq!(
        (&h100["count"], &h100["price_usd"], &h100["power_w"]),
        (&json!(4), &json!(120_000.0), &json!(2800.0))
    );
    assert!(
        sets.iter()
            .all(|set| set["safe_bytes_per_gpu"].as_u64() <= set["memory_bytes"].as_u64())
    );
    assert_eq!(sets[0]["rank"], 1);
}

#[tokio::test]
async fn unbeaten_sets_come_first_and_say_what_they_are_best_at_and_how_fast_they_are() {
    let short = run("size 70B --task infer")
        .await
        .expect(0, &["BEST AT", "more sets hold it too", "TOKENS/S"]);
    assert!(
        short.out.contains("No price is known of ") && short.out.contains("left out where cost is judged"),
        "{short:?}"
    );
    let first = |ran: &str| ran.lines().any(|line| line.trim_start().starts_with("1 "));
    assert!(first(&short.out), "the one that is explained is shown: {short:?}");
    let of_kind = run("size 70B --kind h100-sxm5-80gb").await;
    of_kind.expect(0, &["tensor 4", "pipeline 3"]);
    let all = run("size 70B --task infer --all").await.expect(0, &["BEST AT"]);
    assert!(
        short.out.lines().count() < all.out.lines().count() / 2,
        "{short:?}"
    );
    let answer = run("size 8B --task full --tokens 1T --kind h100-sxm5-80gb,max-1100-48gb -o json")
        .await
        .expect(0, &[])
        .json();
    let sets = answer["sets"].as_array().unwrap();
    assert!(sets.iter().any(|set| set["on_front"] == true));
    let best = sets.iter().find(|set| set["kind"] == "h100-sxm5-80gb").unwrap();
    assert!(
        best["best_at"].as_array().unwrap().contains(&json!("gpus")),
        "{best}"
    );
    let speed = |key: &str| best["speed"][key].as_f64().unwrap();
    let all_gpus = speed("tokens_per_s_per_gpu") * best["count"].as_f64().unwrap();
    assert!(
        (best["run_time_s"].as_f64().unwrap() * all_gpus / 1e12 - 1.0).abs() < 1e-6,
        "{best}"
    );
    assert!((0.0..1.0).contains(&speed("communication_share")));
    run("size 8B --tokens lots").await.refused(2, &["20B or 15T"]);
}

#[tokio::test]
async fn only_the_kinds_that_were_named_are_used_and_others_say_why_not() {
    let line = "size 400B --task infer --kind h100-pcie-80gb,t4-16gb --host-slots 8 -o json";
    let answer = run(line).await.expect(0, &[]).json();
    let kinds: Vec<&str> = answer["sets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|set| set["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.contains(&"h100-pcie-80gb")
            && kinds
                .iter()
                .all(|kind| ["h100-pcie-80gb", "t4-16gb"].contains(kind))
    );
    assert!(
        answer["sets"][0]["hosts"].as_u64().unwrap() >= 2,
        "too big for one host of 8: {answer}"
    );
}

#[tokio::test]
async fn a_model_that_fits_nowhere_says_why_of_each_kind() {
    let ran = run("size 400B --task full --kind t4-16gb -o json")
        .await
        .expect(5, &["t4-16gb", "hint: "]);
    assert_eq!(ran.json()["sets"], json!([]));
    assert_eq!(ran.json()["rejected"][0]["kind"], "t4-16gb");
    run("size 400B --task full --kind t4-16gb")
        .await
        .refused(5, &["fits nowhere", "t4-16gb"]);
}

#[tokio::test]
async fn what_fits_nowhere_is_a_summary_with_a_hint_of_its_task() {
    let short = run("size 400B --task full --kind t4-16gb,a2-16gb").await.expect(
        5,
        &[
            "2 kinds of GPU were tried",
            "t4-16gb comes nearest",
            "--task lora or qlora",
            "--explain",
        ],
    );
    assert!(
        short.err.lines().count() == 2 && !short.err.contains("a2-16gb") && !short.err.contains("fp8"),
        "{short:?}"
    );
    run("size 400B --task full --kind t4-16gb,a2-16gb --explain")
        .await
        .expect(5, &["a2-16gb: over 1024 GPUs"]);
    run("size 8B --task lora --kind h100").await.refused(
        3,
        &[
            "did you mean h100-nvl-94gb, h100-pcie-80gb or h100-sxm5-80gb?",
            "size --list kinds",
        ],
    );
}

#[tokio::test]
async fn what_is_known_is_listed() {
    let kinds = run("size --list kinds -o csv").await.expect(0, &[]).out;
    assert!(
        kinds.starts_with("name,model,vendor,memory_bytes,power_w,price_usd\n"),
        "{kinds}"
    );
    assert!(
        kinds.lines().any(|line| line.starts_with("h100-pcie-80gb,")),
        "{kinds}"
    );
    run("size --list models")
        .await
        .expect(0, &["Llama-3.1-8B", "billion"]);
    run("size --list rules -o json").await.expect(0, &["liqid"]);
    run("size --list model-types")
        .await
        .expect(0, &["llama", "qwen3_moe", "mamba2"]);
    run("size 8B --list models").await.refused(2, &["--list"]);
    let sets = run("size 8B --kind l40s-48gb -o csv").await.expect(0, &[]).out;
    assert!(
        sets.starts_with("rank,count,kind,safe_bytes_per_gpu,memory_bytes,bytes_per_gpu,"),
        "{sets}"
    );
    assert!(!sets.contains("GiB") && !sets.contains('$'), "{sets}");
    run("size 8B").await.expect(0, &["SAFE PER GPU: to count on"]);
}

#[tokio::test]
async fn liqids_rule_and_its_tables_beside_ours() {
    let answer = run("size 70B --rule liqid -o json").await.expect(0, &[]).json();
    assert_eq!(answer["memory_gb"], 175.0);
    assert_eq!(
        (
            &answer["working_range"]["low_gb"],
            &answer["working_range"]["high_gb"]
        ),
        (&json!(350.0), &json!(700.0))
    );
    let tables = run("size table --kind h100-sxm5-80gb -o csv")
        .await
        .expect(0, &[]);
    assert_eq!(
        tables.out.lines().next().unwrap(),
        "billions,precision,bits,rule_memory_gb,our_memory_gb,rule_gpus,our_gpus,rule_cost_usd,our_cost_usd,\
         our_kwh_a_year,reasons"
    );
    let cell = tables
        .out
        .lines()
        .find(|line| line.starts_with("400,FP16/BF16,16,1000,"))
        .unwrap();
    assert!(cell.contains(",390000,"), "{cell}");
    let shown = [
        "Memory",
        "Number of GPUs",
        "Cost of the GPUs",
        "$390,000 | $",
        "Why they differ",
        "heads divide",
    ];
    let energy = [
        "at 700 W for 61 % of a year takes 3,740 kWh",
        "Left out: hosts, switches and cooling",
    ];
    run("size table").await.expect(0, &shown).expect(0, &energy);
    run("size table --utilisation 1").await.expect(0, &["6,132 kWh"]);
    run("size table --utilisation 2").await.refused(2, &["0 to 1"]);
    run("size table --kind voodoo2").await.refused(3, &["voodoo2"]);
    run("size table --rule folklore").await.refused(3, &["liqid"]);
}

#[tokio::test]
async fn measured_peaks_correct_constants_and_every_estimate_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (measured, out) = (
        folder.path().join("measured.csv"),
        folder.path().join("here.json"),
    );
    let header = "id,task,params,layers,hidden,heads,kv_heads,ffn,vocab,mlp,tied,seq_len,micro_batch,precision,\
                  recompute,metric,peak_gib";
    let case = |id: &str, seq_len: u32, metric: &str, peak: f64| {
        format!(
            "{id},full,1235814400,16,2048,32,8,8192,128256,swiglu,1,{seq_len},1,bf16,none,{metric},{peak}\n"
        )
    };
    // Peaks of 0.98 of the prediction.
    let cases: String = [1024, 2048, 4096]
        .map(|n| case(&format!("c{n}"), n, "reserved", 1.0))
        .concat();
    std::fs::write(&measured, format!("{header}\n{cases}")).unwrap();
    let live = run(&format!("size --batch {} -o json", measured.display()))
        .await
        .expect(0, &[])
        .json();
    let peak = |at: usize| live[at]["predicted_gib"].as_f64().unwrap() * 0.98;
    let rows: String = [1024, 2048, 4096]
        .into_iter()
        .enumerate()
        .map(|(at, n)| case(&format!("m{n}"), n, "reserved", peak(at)))
        .collect();
    let odd = case("odd", 1024, "reserved", 900.0);
    std::fs::write(&measured, format!("{header}\n{rows}{odd}")).unwrap();
    let line = format!("size calibrate {} --out {}", measured.display(), out.display());
    let ran = run(&line)
        .await
        .expect(0, &["allocator-alone", "x 0.980", "1 row not used", "odd: "]);
    assert!(ran.out.contains("ERROR BEFORE"), "{ran:?}");
    // The same table with what it corrected: each row comes out as it was measured.
    let again = format!(
        "size --batch {} --calibration {} -o json",
        measured.display(),
        out.display()
    );
    let again = run(&again).await.expect(0, &[]).json();
    for at in 0..3 {
        let found = again[at]["predicted_gib"].as_f64().unwrap();
        assert!((found / peak(at) - 1.0).abs() < 1e-3, "{found}");
    }
    let sized = "size Llama-3.2-1B --task full --kind h100-pcie-80gb";
    let calibrated = format!("{sized} --calibration {}", out.display());
    run(&calibrated).await.expect(0, &["calibrated: ", "from 3 rows"]);
    let plain = run(&format!("{sized} -o json")).await.expect(0, &[]).json();
    let corrected = run(&format!("{calibrated} -o json")).await.expect(0, &[]).json();
    assert!(corrected["bytes_per_gpu"].as_u64() < plain["bytes_per_gpu"].as_u64());

    std::fs::write(&measured, format!("{header}\n{odd}")).unwrap();
    run(&line)
        .await
        .expect(2, &["odd: ", "corrects no constant", "hint: "]);
    std::fs::write(&out, r#"{"corrections": [{"framework": "pytorch"}]}"#).unwrap();
    run(&calibrated)
        .await
        .refused(2, &["here.json", "size calibrate"]);
    let refused = run(&format!("{line} -o csv")).await;
    refused.expect(2, &["odd: ", "the reasons are above"]);
    run("size calibrate no-such.csv")
        .await
        .refused(3, &["no-such.csv"]);
}

#[tokio::test]
async fn many_cases_are_sized_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.csv");
    let header =
        "id,task,params,layers,hidden,heads,kv_heads,ffn,vocab,mlp,tied,seq_len,micro_batch,precision";
    std::fs::write(
        &file,
        format!(
            "{header}\nsmall,full,1235814400,16,2048,32,8,8192,128256,swiglu,1,4096,1,bf16\n\
             odd,full,1235814400,16,2048,32,8,8192,128256,wheel,1,4096,1,bf16\n"
        ),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let ran = run(&format!("size --batch {file}")).await.expect(0, &[]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "id,predicted_gib,safe_gib,refused");
    assert!(
        lines[1].starts_with("small,") && lines[1].ends_with(','),
        "{lines:?}"
    );
    assert!(
        lines[2].starts_with("odd,,,") && lines[2].contains("wheel"),
        "{lines:?}"
    );
    let cases = run(&format!("size --batch {file} -o json"))
        .await
        .expect(0, &[])
        .json();
    assert!(cases[0]["safe_gib"].as_f64().unwrap() >= cases[0]["predicted_gib"].as_f64().unwrap());
    run("size --batch no-such.csv").await.refused(3, &["no-such.csv"]);
}

#[tokio::test]
async fn a_run_of_phases_is_a_need_for_each_window_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    let run_file = |lines: &str| std::fs::write(&file, format!("model = \"Llama-3.1-8B\"\n{lines}")).unwrap();
    run_file(
        r#"
        [[phase]]
        kind = "warm-up"
        tokens = "2B"
        gpus = 8
        gpu = "h100-sxm5-80gb"
        job = { context = 2048, micro_batch = 2 }
        [[phase]]
        kind = "evaluation"
        hours = 2
        "#,
    );
    let line = format!("size --phases {} --host-slots 8", file.display());
    run(&line)
        .await
        .expect(0, &["warm-up", "evaluation", "2.0 h", "OTHER SETS"]);
    let answer = run(&format!("{line} --start 2026-12-01T20:00:00Z -o json"))
        .await
        .expect(0, &[])
        .json();
    let phases = answer["phases"].as_array().unwrap();
    assert_eq!(phases[0]["starts"], "2026-12-01T20:00:00Z");
    assert_eq!(phases[0]["ends"], phases[1]["starts"]);
    assert_eq!(phases[0]["need"]["alternatives"][0]["count"], 8);
    let lasts = phases[0]["end_s"].as_f64().unwrap();
    let needed = 2e9 / phases[0]["tokens_per_s"].as_f64().unwrap();
    assert!((lasts - needed).abs() <= 1.0, "{lasts} {needed}");
    assert_eq!(answer["seconds"].as_u64(), phases[1]["end_s"].as_u64());
    run_file("[[phase]]\nkind = \"lunch\"\nhours = 1");
    run(&line)
        .await
        .refused(2, &["run.toml", "warm-up, main, long-context"]);
    run_file("[[phase]]\nkind = \"main\"\nhours = 1\ngpus = 1\ngpu = \"t4-16gb\"");
    run(&line).await.refused(5, &["phase main", "t4-16gb"]);
    run("size --start 2026-12-01T20:00:00Z --list kinds")
        .await
        .refused(2, &["--start"]);
}

#[tokio::test]
async fn what_would_be_ignored_or_contradicts_is_refused_with_its_range() {
    for (line, says) in [
        ("size 8B --context -5", "from 1 to 1073741824"),
        (
            "size 8B --context 1000000000000000000000000000000",
            "from 1 to 1073741824",
        ),
        ("size 8B --concurrency 0", "from 1 to 1048576"),
        ("size 8B --gpus 0", "from 1 to 1024"),
        ("size 8B --gpus two", "from 1 to 1024"),
        ("size -5B", "sizes, counts and times have no sign"),
        ("compose --gpus -1", "from 1 to 65536"),
        ("compose --gpus two", "from 1 to 65536"),
        ("demand add x --gpus 0", "from 1 to 65536"),
        ("size --batch cases.csv --task full", "--task"),
        ("size --batch cases.csv --kind t4-16gb", "--kind"),
        ("size --list kinds --explain", "--explain"),
        ("size --list kinds --tensor 2", "--tensor"),
        ("size --phases run.toml --all", "--all"),
        ("size --phases run.toml --gpus 8", "--gpus"),
        ("size 8B --rule liqid --explain", "--explain"),
        ("size 8B --start 2026-12-01T20:00:00Z", "--start"),
        (
            "size 8B --weights fp8 --set weights=int8",
            "--weights and --set weights",
        ),
        (
            "size 8B --task full --context 4096 --set seq_len=8192",
            "--context and --set seq_len",
        ),
        (
            "size 8B --set cache_bytes=1 --set cache_bytes=2",
            "--set cache_bytes twice",
        ),
        ("size 8B --set cache_bytes=3", "allowed: 1, 2, 4"),
        (
            "size 8B --set engine=llama.cpp --set weights=nf4",
            "with engine llama.cpp",
        ),
        (
            "size 8B --tensor 3",
            "--tensor 3: tensor is 3; allowed: a divisor of attention heads, 32",
        ),
        (
            "size 8B --context-parallel 2",
            "--context-parallel 2: context is 2; allowed: 1 where a model is served",
        ),
        ("size 8B --host-memory 1TiB", "--host-memory is for training"),
        ("size 8B --task full --host-memory lots", "write a number and"),
        ("size 8B --tokens -1", "1 to 10^18"),
        ("size table --utilisation -1", "0 to 1"),
        (
            "size --phases run.toml --start 2026",
            "such as 2026-12-01T20:00:00Z",
        ),
    ] {
        run(line).await.refused(2, &[says]);
    }
    for size in ["0B", "1e30B"] {
        run(&format!("size {size}"))
            .await
            .refused(3, &["sizes go from 1B to 5T"]);
    }
}

/// What an offloaded job keeps in the host's memory is told, and is a limit; so is what a host and a switch join.
#[tokio::test]
async fn what_a_host_has_is_a_limit() {
    let line = "size 70B --task full --set offload=params --gpus 8 --kind h100-sxm5-80gb";
    let whole = run(line)
        .await
        .expect(0, &["offloaded: 130.39 GiB of the host's memory for each GPU"]);
    assert!(!whole.out.contains("How 8 x"), "{}", whole.out);
    let least = run(&format!("{line} --host-memory 2TiB -o json"))
        .await
        .expect(0, &[])
        .json();
    let each = least["sets"][0]["host_bytes_per_gpu"].as_u64().unwrap();
    assert!((130 << 30..131 << 30).contains(&each), "{each}");
    run(&format!("{line} --host-memory 512GiB")).await.refused(
        5,
        &[
            "the GPUs of a host would keep 1.02 TiB in its memory, and it has 512.0 GiB",
            "--set offload=optimizer",
        ],
    );
    run("size 70B --tensor 16 --kind h100-sxm5-80gb").await.refused(
        5,
        &[
            "tensor 16 needs 16 GPUs on one host and one switch or island, which join 8 at most",
            "--host-slots",
        ],
    );
    run("size Llama-3.1-8B --context 200000 --kind h100-sxm5-80gb")
        .await
        .expect(
            0,
            &["warning: 200000 tokens are more than the model's context of 131072"],
        );
}

#[tokio::test]
async fn a_layout_can_be_asked_for() {
    let line = "size 70B --task full --accumulation 16 --gpus 128 --tensor 8 --pipeline 4 --interleave 2 \
                --kind h100-sxm5-80gb -o json";
    let answer = run(line).await.expect(0, &[]).json();
    for set in answer["sets"].as_array().unwrap() {
        assert_eq!(set["count"], 128);
        let ways = &set["division"]["training"];
        assert_eq!(
            (&ways["tensor"], &ways["pipeline"], &ways["interleave"]),
            (&json!(8), &json!(4), &json!(2))
        );
    }
}

#[tokio::test]
async fn a_config_says_how_its_weights_are_stored_and_goes_into_a_run_of_phases() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}"#;
    let file = folder.path().join("mine.json");
    std::fs::write(&file, config).unwrap();
    let size = format!("size {} -o json", file.display());
    let answer = run(&size)
        .await
        .expect(0, &["weights in fp8, as the model's file has them"]);
    assert!(answer.json()["label"].as_str().unwrap().contains("infer fp8"));
    let other = run(&format!("{size} --weights bf16")).await.expect(0, &[]).json();
    assert!(other["label"].as_str().unwrap().contains("infer bf16"));
    let phases = folder.path().join("run.toml");
    let text = "model = \"mine.json\"\n[[phase]]\nkind = \"main\"\nhours = 2\nset = {micro_batch = 2}\n";
    std::fs::write(&phases, text).unwrap();
    let run_of = format!("size --phases {} -o json", phases.display());
    let answer = run(&run_of).await.expect(0, &[]).json();
    let label = answer["phases"][0]["need"]["label"].as_str().unwrap();
    assert!(
        label.contains("mine full") && label.contains("2 x 4096"),
        "{label}"
    );
}

#[tokio::test]
async fn weights_stored_in_an_unknown_way_are_sized_in_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}"#;
    let file = folder.path().join("mixed.json");
    std::fs::write(&file, config).unwrap();
    let size = format!("size {}", file.display());
    run(&size).await.refused(
        2,
        &[
            "quant_algo is \"MIXED_PRECISION\"; allowed: FP8, NVFP4",
            "--weights fp8",
        ],
    );
    let sized = run(&format!("{size} --weights fp8")).await;
    sized.expect(
        0,
        &[
            "infer fp8",
            "warning: weights counted in fp8, as asked",
            "MIXED_PRECISION",
        ],
    );
    run(&format!("{size} --task lora"))
        .await
        .expect(0, &["lora bf16"]);
}

#[tokio::test]
async fn what_is_outside_tensors_follows_the_software_and_the_layout() {
    let card = "--kind h100-sxm5-80gb --explain";
    let experts = format!("size Mixtral-8x7B --task lora --gpus 8 --expert 8 {card}");
    run(&experts).await.expect(
        0,
        &[
            "all-to-all 2.62 GiB",
            "7 peers x 32 channels x 12 MiB",
            "nccl issue 1685",
        ],
    );
    let old = format!("size 8B --task lora {card} --set framework_version=1.12 --set cuda=11.4");
    run(&old).await.expect(
        0,
        &[
            "context 1.10 GiB",
            "PyTorch before 1.13, or CUDA before 11.7",
            "pytorch issue",
        ],
    );
    run("size 8B --task lora --set cuda=new")
        .await
        .refused(2, &["version is \"new\"; allowed: such as 2.7 or 11.8"]);
}

#[tokio::test]
async fn a_known_model_is_served_in_what_it_is_published_in() {
    let label = |answer: &serde_json::Value| answer["label"].as_str().unwrap().to_owned();
    let eight = run("size DeepSeek-R1 --kind h200-sxm-141gb --context 8192 -o json")
        .await
        .expect(0, &["weights in fp8, as the model's file has them"])
        .json();
    assert!(label(&eight).contains("infer fp8"));
    assert_eq!(eight["sets"][0]["count"], 8);
    let oss = run("size gpt-oss-120b --kind h100-sxm5-80gb -o json").await;
    let oss = oss.expect(0, &[]).json();
    assert!(label(&oss).contains("infer mxfp4"));
    assert_eq!(oss["sets"][0]["count"], 1);
    // What an engine does not read is not served by it.
    let whole = run("size DeepSeek-V3 --set engine=llama.cpp -o json").await;
    let whole = whole.expect(0, &["llama.cpp does not read fp8"]).json();
    assert!(label(&whole).contains("infer bf16"));
}
