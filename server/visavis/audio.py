"""Audio as plain samples: the Pcm type, rates, resampling, WAV. Sans-I/O."""

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
"Mono, 16 bit. The rate is in the name or the docstring; 24 kHz where nothing is said."

RATE = 24_000
"Samples per second of everything inside a conversation: turn buffer, playout, engine audio."

BLOCK = 480
"Samples of one 20 ms block at `RATE`."

EMPTY: Pcm = np.zeros(0, np.int16)
