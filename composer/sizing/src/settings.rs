//! Every setting of a job by name, as text: for command lines and files that change one thing of the usual job.
//!
//! A name that the task does not have is refused with those that it has; so is what contradicts the task, such as
//! a rank where all weights are trained.

use crate::error::SizingError;
use crate::job::{FROZEN, Inference, Job, Method, Training, WeightFormat};
use std::str::FromStr;

const SERVING: [&str; 16] = [
    "weights",
    "cache_bytes",
    "prompt_tokens",
    "generated_tokens",
    "concurrency",
    "attention",
    "allocator",
    "prompt_logits",
    "engine",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "prefix_caching",
    "enforce_eager",
    "framework_version",
    "cuda",
];
const TRAINING: [&str; 14] = [
    "precision",
    "micro_batch",
    "seq_len",
    "accumulation",
    "recompute",
    "attention",
    "loss",
    "sharding",
    "optimizer",
    "offload",
    "allocator",
    "framework",
    "framework_version",
    "cuda",
];
const ADAPTERS: [&str; 3] = ["rank", "targets", "adapter_type"];
const QLORA: [&str; 1] = ["frozen"];

pub fn names(job: &Job) -> Vec<&'static str> {
    match job {
        Job::Inference(_) => SERVING.to_vec(),
        Job::Training(training) => {
            let mut names = TRAINING.to_vec();
            if training.method != Method::Full {
                names.extend(ADAPTERS);
            }
            if training.method == Method::Qlora {
                names.extend(QLORA);
            }
            names
        }
    }
}

/// Changes one setting; the job is checked as a whole afterwards.
pub fn set(job: &mut Job, name: &str, value: &str) -> Result<(), SizingError> {
    let names = names(job);
    if !names.contains(&name) {
        let allowed = format!("for {}: {}", job.task(), names.join(", "));
        return Err(SizingError::bad("setting", format!("{name:?}"), &allowed));
    }
    match job {
        Job::Inference(inference) => serving(inference, name, value)?,
        Job::Training(training) => step(training, name, value)?,
    }
    job.check()
}

fn serving(job: &mut Inference, name: &str, value: &str) -> Result<(), SizingError> {
    match name {
        "weights" => job.weights = value.parse()?,
        "cache_bytes" => job.cache_bytes = number(name, value)?,
        "prompt_tokens" => job.prompt_tokens = number(name, value)?,
        "generated_tokens" => job.generated_tokens = number(name, value)?,
        "concurrency" => job.concurrency = number(name, value)?,
        "attention" => job.attention = value.parse()?,
        "allocator" => job.allocator = value.parse()?,
        "max_num_seqs" => job.max_num_seqs = Some(number(name, value)?),
        "max_num_batched_tokens" => job.max_num_batched_tokens = Some(number(name, value)?),
        "gpu_memory_utilization" => {
            job.gpu_memory_utilization = Some(read(name, value, "a share such as 0.9")?);
        }
        "prefix_caching" => job.prefix_caching = read(name, value, "true, false")?,
        "enforce_eager" => job.enforce_eager = read(name, value, "true, false")?,
        "prompt_logits" => job.prompt_logits = read(name, value, "true, false")?,
        "framework_version" => job.framework_version = Some(value.parse()?),
        "cuda" => job.cuda = Some(value.parse()?),
        _ => job.choose(value),
    }
    Ok(())
}

fn step(job: &mut Training, name: &str, value: &str) -> Result<(), SizingError> {
    match name {
        "precision" => job.precision = value.parse()?,
        "micro_batch" => job.micro_batch = number(name, value)?,
        "seq_len" => job.seq_len = number(name, value)?,
        "accumulation" => job.accumulation = number(name, value)?,
        "recompute" => job.recompute = value.parse()?,
        "attention" => job.attention = value.parse()?,
        "loss" => job.loss = value.parse()?,
        "sharding" => job.sharding = value.parse()?,
        "optimizer" => job.optimizer = value.parse()?,
        "offload" => job.offload = value.parse()?,
        "allocator" => job.allocator = value.parse()?,
        "rank" => job.adapters.rank = number(name, value)?,
        "targets" => job.adapters.targets = value.parse()?,
        "adapter_type" => job.adapters.dtype = value.parse()?,
        "frozen" => job.frozen = read(name, value, &FROZEN.map(WeightFormat::name).join(", "))?,
        "framework_version" => job.framework_version = Some(value.parse()?),
        "cuda" => job.cuda = Some(value.parse()?),
        _ => job.framework = value.to_owned(),
    }
    Ok(())
}

fn number(name: &str, value: &str) -> Result<u64, SizingError> {
    read(name, value, "a whole number")
}

fn read<T: FromStr>(name: &str, value: &str, allowed: &str) -> Result<T, SizingError> {
    value
        .parse()
        .map_err(|_| SizingError::bad(name, format!("{value:?}"), allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::Task;

    #[test]
    fn every_setting_is_read_and_nonsense_is_refused_by_name() {
        let good = [
            ("weights", "fp8"),
            ("cache_bytes", "1"),
            ("prompt_logits", "true"),
            ("engine", "llama.cpp"),
            ("max_num_seqs", "64"),
            ("gpu_memory_utilization", "0.8"),
            ("prefix_caching", "true"),
            ("enforce_eager", "true"),
            ("precision", "fp32"),
            ("recompute", "none"),
            ("attention", "eager"),
            ("loss", "chunked"),
            ("sharding", "zero2"),
            ("optimizer", "adamw_8bit"),
            ("offload", "optimizer"),
            ("allocator", "expandable_segments"),
            ("framework", "megatron"),
            ("targets", "qv"),
            ("adapter_type", "fp32"),
            ("frozen", "nf4-dq"),
        ];
        for task in Task::ALL {
            let usual = Job::of(*task);
            for name in names(&usual) {
                let value = good.iter().find(|(known, _)| *known == name);
                let value = value.map_or("7", |(_, value)| value);
                let mut job = usual.clone();
                set(&mut job, name, value).unwrap();
                assert_ne!(job, usual, "{task} {name} = {value}");
                let error = set(&mut job, name, "-1e30").unwrap_err().to_string();
                assert!(error.contains("; allowed: "), "{error}");
            }
        }
    }

    #[test]
    fn words_of_peft_and_versions_of_vllm() {
        let changed = |task, name, value| {
            let mut job = Job::of(task);
            set(&mut job, name, value).map(|()| job)
        };
        for (words, name) in [
            ("all-linear", "all"),
            ("q_proj,v_proj", "qv"),
            ("gate_proj,up_proj,down_proj", "mlp"),
        ] {
            assert_eq!(
                changed(Task::Lora, "targets", words),
                changed(Task::Lora, "targets", name)
            );
        }
        let of = |value| match changed(Task::Infer, "engine", value) {
            Ok(Job::Inference(job)) => Some(job.engine),
            _ => None,
        };
        for (version, row) in [
            ("vllm", Some("vllm-0.11")),
            ("vLLM-0.15.1", Some("vllm-0.11")),
            ("vllm-0.16", Some("vllm-0.19")),
            ("vllm-0.30", Some("vllm-0.22")),
            ("transformers", Some("pytorch")),
            ("vllm-0.6", None),
            ("vllm-new", None),
            ("v-0.20", None),
            ("-0.9", None),
            ("sglang-0.5", None),
        ] {
            assert_eq!(of(version).as_deref(), row, "{version}");
        }
    }

    #[test]
    fn what_the_task_does_not_have_is_refused() {
        let error = |task, name, value| set(&mut Job::of(task), name, value).unwrap_err().to_string();
        assert!(
            error(Task::Full, "rank", "8").starts_with("setting is \"rank\"; allowed: for full: precision")
        );
        assert!(error(Task::Lora, "frozen", "nf4").contains("allowed: for lora"));
        assert!(error(Task::Infer, "optimizer", "sgd").contains("allowed: for infer: weights"));
        assert_eq!(
            error(Task::Full, "seq_len", "0"),
            "seq_len is 0; allowed: 1 to 1073741824"
        );
    }
}
