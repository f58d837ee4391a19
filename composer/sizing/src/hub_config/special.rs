//! Models whose layers no row describes: each read by a function of its own.

use super::ConfigError;
use super::decoder::Reader;
use super::fields::Fields;
use serde::Deserialize;

mod experts;
mod gemma;
mod nemotron;
mod recurrent;
mod rwkv;
mod sparse;
mod zamba;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layers {
    #[serde(rename = "deepseek-v4")]
    DeepSeekV4,
    #[serde(rename = "gemma-3n")]
    Gemma3n,
    #[serde(rename = "gemma-4")]
    Gemma4,
    Jetmoe,
    Longcat,
    Mimo,
    #[serde(rename = "minimax-m3")]
    MiniMaxM3,
    Mllama,
    NemotronH,
    #[serde(rename = "rwkv-4")]
    Rwkv4,
    #[serde(rename = "rwkv-6")]
    Rwkv6,
    #[serde(rename = "rwkv-7")]
    Rwkv7,
    Xlstm,
    Zamba,
    #[serde(rename = "zamba-2")]
    Zamba2,
}

impl Layers {
    /// With the number of layers that only a list has.
    pub fn complete(self, fields: Fields) -> Result<Fields, ConfigError> {
        match self {
            Layers::NemotronH => {
                let numbers = nemotron::layers(&fields)?;
                Ok(fields.or(&[("num_hidden_layers", numbers.iter().sum())]))
            }
            _ => Ok(fields),
        }
    }

    pub fn read(self, of: &mut Reader<'_>) -> Result<(), ConfigError> {
        match self {
            Layers::DeepSeekV4 => sparse::deepseek_v4(of),
            Layers::Gemma3n => gemma::gemma3n(of),
            Layers::Gemma4 => gemma::gemma4(of),
            Layers::Jetmoe => experts::jetmoe(of),
            Layers::Longcat => experts::longcat(of),
            Layers::Mimo => experts::mimo(of),
            Layers::MiniMaxM3 => sparse::minimax_m3(of),
            Layers::Mllama => experts::mllama(of),
            Layers::NemotronH => nemotron::read(of),
            Layers::Rwkv4 => rwkv::fourth(of),
            Layers::Rwkv6 => rwkv::sixth(of),
            Layers::Rwkv7 => rwkv::seventh(of),
            Layers::Xlstm => recurrent::xlstm(of),
            Layers::Zamba => zamba::zamba(of),
            Layers::Zamba2 => zamba::zamba2(of),
        }
    }
}
