//! How many GPUs, and how a job is divided over them, where that is not left to the search.

use crate::commands::number::within;
use poolwright_sizing::Limits;
use poolwright_sizing::fit::Widths;

/// The names of these arguments, for what excludes them.
pub const NAMES: [&str; 6] = [
    "gpus",
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
}

impl LayoutArgs {
    pub fn limits(&self, host_slots: Option<u32>) -> Limits {
        Limits {
            host_slots,
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
