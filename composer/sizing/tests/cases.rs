//! The batch mode: its own small table here, and the shared cases where they are present.

use poolwright_sizing::batch::{self, Outcome};
use std::collections::HashMap;
use std::path::PathBuf;

const HEADER: &str = "id,model,params,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,tied,mlp,task,precision,\
micro_batch,seq_len,gen_tokens,grad_accum,shard_ranks,recompute,attention,loss,trainable_params,lora_dtype,\
lora_targets,weights_dtype,framework,metric";
const LLAMA: &str = "llama3-8b,8030261248,32,4096,32,8,128,14336,128256,0,swiglu";

#[test]
fn rows_are_predicted_or_refused_one_by_one() {
    let cases = format!(
        "{HEADER}\n\
         a,{LLAMA},full,bf16,1,2048,,1,1,none,flash,full_fp32,8030261248,,,,x,allocated\n\
         b,{LLAMA},full,bf16,1,2048,,1,1,none,flash,full_fp32,8030261248,,,,x,reserved\n\
         c,{LLAMA},qlora,bf16,1,2048,,1,1,none,flash,full_fp32,41943040,bf16,all,nf4,x,allocated\n\
         d,{LLAMA},infer,,1,1,2048,,1,,flash,,,,,fp8,x,allocated\n\
         e,{LLAMA},sleep,,1,1,2048,,1,,flash,,,,,fp8,x,allocated\n\
         f,{LLAMA},full,int3,1,2048,,1,1,none,flash,full_fp32,8030261248,,,,x,allocated\n\
         g,{LLAMA},lora,bf16,1,2048,,1,1,none,flash,full_fp32,,,\"q,v\",,x,allocated\n"
    );
    let csv = batch::to_csv(&batch::size(&cases).unwrap());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "id,predicted_gib,safe_gib,refused");
    assert_eq!(lines[1], "a,60.809,76.011,");
    assert_eq!(lines[2], "b,66.889,76.011,");
    assert_eq!(lines[3], "c,20.523,25.653,");
    // 2 B of 1,050,673,152 in embeddings, 1 B of the rest, 131,072 B for each of 2,049 tokens.
    assert_eq!(lines[4], "d,8.707,10.014,");
    assert!(
        lines[5].starts_with("e,,,\"task is \"\"sleep\"\"; allowed: infer, full"),
        "{}",
        lines[5]
    );
    assert!(
        lines[6].starts_with("f,,,") && lines[6].contains("fp32_autocast_bf16"),
        "{}",
        lines[6]
    );
    assert_eq!(lines[7], "g,,,trainable_params is empty; allowed: a value");
}

/// Where the tables of measured cases lie, if they do.
fn shared() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let dir = std::env::var_os("POOLWRIGHT_SHARED").map_or(beside, PathBuf::from);
    dir.join("sizing/cases.csv").is_file().then_some(dir)
}

#[derive(Default)]
struct Score {
    errors: Vec<f64>,
    under: usize,
}

#[test]
fn measured_cases() {
    let Some(dir) = shared() else {
        eprintln!("no measured cases: set POOLWRIGHT_SHARED to the folder that has sizing/cases.csv");
        return;
    };
    let text = std::fs::read_to_string(dir.join("sizing/cases.csv")).unwrap();
    let mut truth = HashMap::new();
    for line in text.lines().skip(1) {
        // The first field is the id, the last the peak; the task is found by its place before any quote.
        let fields: Vec<&str> = line.split(',').collect();
        truth.insert(
            fields[0].to_owned(),
            (
                fields[12].to_owned(),
                fields[fields.len() - 1].parse::<f64>().unwrap(),
            ),
        );
    }
    let mut scores: HashMap<String, Score> = HashMap::new();
    for Outcome { id, result } in batch::size(&text).unwrap() {
        let (task, peak) = &truth[&id];
        let prediction = result.unwrap_or_else(|why| panic!("{id} refused: {why}"));
        let kind = match (id.starts_with('t'), task.as_str()) {
            (true, _) => "tracker".to_owned(),
            (false, "infer") => "infer".to_owned(),
            (false, _) => "train".to_owned(),
        };
        let score = scores.entry(kind).or_default();
        score.errors.push(prediction.point.gib() / peak - 1.0);
        score.under += usize::from(prediction.safe.gib() < *peak);
    }
    for (kind, most) in [("tracker", 2.0), ("train", 14.0), ("infer", 8.0)] {
        let score = &scores[kind];
        let mean = |f: fn(f64) -> f64| {
            100.0 * score.errors.iter().map(|e| f(*e)).sum::<f64>() / score.errors.len() as f64
        };
        let (mape, bias) = (mean(f64::abs), mean(|e| e));
        println!(
            "{kind}: n={} MAPE={mape:.2}% bias={bias:+.2}% under={}",
            score.errors.len(),
            score.under
        );
        assert!(mape < most, "{kind}: {mape:.2} %");
    }
}
