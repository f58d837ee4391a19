//! How many GPUs, and how a job is divided over them, where that is not left to the search.

use crate::commands::number::within;
use crate::failure::Failure;
use poolwright_model::units::Bytes;
use poolwright_sizing::fit::Widths;
use poolwright_sizing::{Limits, SizingError, Task};

/// The names of these arguments, for what excludes them.
pub const NAMES: [&str; 7] = [
    "gpus",
    "host_memory",
    "tensor",
    "pipeline",
    "interleave",
    "context_parallel",
    "expert",
];

#[derive(Debug, clap::Args)]
pub struct LayoutArgs {
    /// Just so many GPUs, and not the fewest that do
    #[arg(long, value_name = "N", value_parser = within::<u32>(1, 1024), allow_negative_numbers = true)]
    gpus: Option<u32>,
    /// GPUs that share every matrix
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, 1024), allow_negative_numbers = true)]
    tensor: Option<u64>,
    /// Stages, each with its part of the layers
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, 1024), allow_negative_numbers = true)]
    pipeline: Option<u64>,
    /// Parts of the model that each stage holds; for training
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, 1024), allow_negative_numbers = true)]
    interleave: Option<u64>,
    /// GPUs that share the tokens of a sequence; for training
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, 1024), allow_negative_numbers = true)]
    context_parallel: Option<u64>,
    /// GPUs that share the experts of a layer; for training
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, 1024), allow_negative_numbers = true)]
    expert: Option<u64>,
    /// What a host has of memory for what its GPUs offload, such as 512GiB; for training
    #[arg(long, value_name = "SIZE")]
    host_memory: Option<Bytes>,
}

impl LayoutArgs {
    /// What the search refused, under the name of the option that it was asked for with.
    pub fn refused(&self, error: &SizingError) -> String {
        let SizingError::BadValue { key, .. } = error else {
            return error.to_string();
        };
        let options = [
            ("tensor", "--tensor", self.tensor),
            ("pipeline", "--pipeline", self.pipeline),
            ("interleave", "--interleave", self.interleave),
            ("context", "--context-parallel", self.context_parallel),
            ("expert", "--expert", self.expert),
        ];
        let first = key.split(' ').next().unwrap_or_default();
        let asked = options
            .into_iter()
            .find(|(name, _, value)| *name == first && value.is_some());
        match asked {
            Some((_, option, Some(value))) => format!("{option} {value}: {error}"),
            _ => error.to_string(),
        }
    }

    /// Refuses what the task has no use for.
    pub fn check(&self, task: Task) -> Result<(), Failure> {
        if self.host_memory.is_none() || task != Task::Infer {
            return Ok(());
        }
        let message =
            "--host-memory is for training: a model that is served keeps nothing in the host's memory";
        Err(Failure::usage(message).with_hint("leave it out, or name a --task: full, lora, qlora or peft"))
    }

    pub fn limits(&self, host_slots: Option<u32>) -> Limits {
        Limits {
            host_slots,
            host_memory: self.host_memory,
            gpus: self.gpus,
            widths: Widths {
                tensor: self.tensor,
                pipeline: self.pipeline,
                interleave: self.interleave,
                context: self.context_parallel,
                expert: self.expert,
            },
            ..Limits::default()
        }
    }
}
