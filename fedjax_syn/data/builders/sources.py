"""The image data sets that are known by name: addresses, checksums and what they must hold.

Addresses and SHA-256 of the files are those that tensorflow-datasets registers. It registers
the binary version of CIFAR only (cifar-10-binary.tar.gz), so the pickled one is not read. It does
not register CINIC-10 and USPS, for which MD5 are published.
"""

import functools

from fedjax_syn.data.builders.archive_formats import (
  parse_cifar,
  parse_cinic,
  parse_idx,
  parse_usps,
)
from fedjax_syn.data.builders.archives import Archive, Source


def _archives(base: str, table: str) -> tuple[Archive, ...]:
  """Reads rows of: file, checksum of the file, SHA-256 of what is inside (- if not known)."""
  words = table.split()
  return tuple(
    Archive(file, base + file, known_hash, content.strip('-'))
    for file, known_hash, content in zip(words[::3], words[1::3], words[2::3], strict=True)
  )


_MNIST = _archives(
  'https://storage.googleapis.com/cvdf-datasets/mnist/',
  """
  train-images-idx3-ubyte.gz
    sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
  train-labels-idx1-ubyte.gz
    sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
  t10k-images-idx3-ubyte.gz
    sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
  t10k-labels-idx1-ubyte.gz
    sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
  """,
)

_FASHION_MNIST = _archives(
  'http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/',
  """
  train-images-idx3-ubyte.gz
    sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
    c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
  train-labels-idx1-ubyte.gz
    sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
    bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
  t10k-images-idx3-ubyte.gz
    sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
    5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
  t10k-labels-idx1-ubyte.gz
    sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
    0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
  """,
)

_CIFAR10, _CIFAR100 = _archives(
  'https://www.cs.toronto.edu/~kriz/',
  """
  cifar-10-binary.tar.gz
    sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd -
  cifar-100-binary.tar.gz
    sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec -
  """,
)

_CINIC10 = _archives(
  'https://datashare.ed.ac.uk/bitstream/handle/10283/3192/',
  'CINIC-10.tar.gz md5:6ee4d0c996905fe93221de577967a372 -',
)

_USPS = _archives(
  'https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/',
  """
  usps.bz2   md5:ec16c51db3855ca6c91edd34d0e9b197 -
  usps.t.bz2 md5:8ea070ee2aca1ac39742fdd1ef5ed118 -
  """,
)

_ALL = (
  Source(
    name='mnist',
    title='MNIST',
    archives=_MNIST,
    parse=parse_idx,
    shape=(28, 28, 1),
    rows=(60000, 10000),
    mean=(0.13066,),
    normalisation='mnist',
  ),
  Source(
    name='fashion_mnist',
    title='Fashion-MNIST',
    archives=_FASHION_MNIST,
    parse=parse_idx,
    shape=(28, 28, 1),
    rows=(60000, 10000),
    mean=(0.28604,),
    normalisation='mnist',  # DynaFed; FedCOG's is called 'half'
    folders=('/usr/share/datasets/fashion-mnist',),  # Debian's package dataset-fashion-mnist
  ),
  Source(
    name='cifar10',
    title='CIFAR-10',
    archives=(_CIFAR10,),
    parse=functools.partial(parse_cifar, labels=1),
    shape=(32, 32, 3),
    rows=(50000, 10000),
    mean=(0.49140, 0.48216, 0.44653),
    normalisation='cifar10',
  ),
  Source(
    name='cifar100',
    title='CIFAR-100',
    archives=(_CIFAR100,),
    parse=functools.partial(parse_cifar, labels=2),  # coarse, fine
    shape=(32, 32, 3),
    num_classes=100,
    rows=(50000, 10000),
    mean=(0.50708, 0.48655, 0.44092),
    normalisation='cifar10',  # DynaFed's; FedCOG's is called 'cifar100'
  ),
  Source(
    name='cinic10',
    title='CINIC-10',
    archives=_CINIC10,
    parse=parse_cinic,  # the folders train and test; valid is not used
    shape=(32, 32, 3),
    rows=(90000, 90000),
    mean=(0.47890, 0.47228, 0.43047),
    normalisation='cinic10',
    streamed=True,
    # The authors do not say of which images it is the mean. The folders are random thirds, whose
    # means differ by some 5e-4 (an image's has a standard deviation of 0.13); CIFAR-10's differs by
    # 0.01.
    tolerance=2e-3,
  ),
  Source(
    name='usps',
    title='USPS',
    archives=_USPS,
    parse=parse_usps,
    shape=(16, 16, 1),
    rows=(7291, 2007),
    mean=(0.2545,),
    normalisation='auto',
    streamed=True,
    tolerance=2e-3,  # of another rounding to whole numbers
  ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
