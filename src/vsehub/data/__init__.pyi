from .pairs import Pairs as Pairs
from .photos.karpathy import Karpathy as Karpathy
from .precomp import Precomp as Precomp
from .scenes.source import Scenes as Scenes
from .sources import CaptionedImages as CaptionedImages
from .sources import Source as Source
from .truth import read_truth as read_truth
from .vectors.embeddings import open_vectors as open_vectors
