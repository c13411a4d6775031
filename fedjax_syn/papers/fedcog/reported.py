"""The numbers that the paper reports: mean and ±, or the mean alone; columns as in cells.py."""

TABLE1 = """
fedavg    73.07 0.08  64.11 0.78  64.36 0.11  50.55 0.45  39.07 0.36  30.93 0.23
fedavgm   76.81 0.48  67.73 0.65  64.36 0.33  51.32 0.74  39.21 0.19  30.97 0.11
fedprox   73.35 0.07  64.44 1.36  63.91 0.36  53.51 0.32  38.81 0.03  30.76 0.21
scaffold  77.02 0.63  58.47 3.05  64.36 0.43  48.35 1.86  42.25 0.40  34.27 0.22
moon      73.21 0.28  63.11 1.08  63.65 0.04  51.01 1.54  39.34 0.18  31.17 0.13
fedsam    76.44 0.06  68.14 0.60  61.38 0.23  50.76 0.36  37.97 0.26  30.75 0.11
vhl       73.08 0.89  70.26 1.79  60.81 1.33  51.60 0.98  37.55 1.06  28.41 0.48
fedexp    65.03 1.14  59.49 1.69  48.96 2.11  37.97 1.75  35.14 1.25  22.47 0.29
feddecorr 72.77 0.70  60.70 4.59  63.40 0.29  47.53 1.99  37.68 0.40  27.08 0.29
fedreg    70.75 0.23  69.89 0.74  55.40 0.33  46.64 0.42  30.95 0.39  23.70 0.31
fedgen    72.64 1.27  61.34 2.44  62.45 0.40  49.12 0.51  37.99 0.23  26.93 0.15
fedcog    77.34 0.07  73.68 0.38  64.83 0.12  54.00 0.84  42.88 0.02  34.80 0.42
"""
AVERAGE1 = """
fedavg    53.68
fedavgm   55.07
fedprox   54.13
scaffold  54.12
moon      53.58
fedsam    54.24
vhl       53.62
fedexp    44.84
feddecorr 51.53
fedreg    49.52
fedgen    51.75
fedcog    57.92
"""
TABLE2 = """
fedavg    30.76  14.23  18.30  44.53
fedavgm   29.76  16.76  20.44  48.43
fedprox   32.27  14.95  18.66  45.71
scaffold  31.10  12.37  16.74  42.50
moon      31.41  14.71  18.83  44.99
fedsam    32.33  14.39  17.94  46.18
feddecorr 33.44  13.36  17.51  41.89
fedexp    29.14  15.70  19.64  46.57
fedcog    37.87  18.78  20.89  51.35
"""
# CIFAR-10 NIID-1 and NIID-2; FLAIR's O-F1 and C-F1.
TABLE3 = """
fedavg          63.34  49.30
fedcog          64.47  49.50
fedavgm         61.71  44.73
fedavgm+fedcog  64.63  45.14
fedprox         64.15  50.35
fedprox+fedcog  64.87  50.89
scaffold        63.67  46.47
scaffold+fedcog 65.36  51.26
moon            62.56  49.64
moon+fedcog     63.24  50.72
"""
TABLE3_FLAIR = """
fedavg          47.91  20.63
fedcog          51.35  20.89
fedavgm         48.77  20.11
fedavgm+fedcog  51.60  21.98
fedprox         45.71  18.66
fedprox+fedcog  54.57  19.08
scaffold        42.50  16.74
scaffold+fedcog 45.22  18.96
moon            44.99  18.83
moon+fedcog     52.78  19.92
"""
TABLE4 = """
fedavg   983 100  63.34 -
fedprox 1051  87  64.57 -
moon    1276 147  64.44 -
fedcog  1001  98  65.59 -
"""
TABLE5 = """
fedcog-noise  60.98  49.67
fedcog-global 64.72  51.61
fedcog-hard   63.59  51.64
fedcog        64.88  53.20
"""
TABLE6 = """
fedavg  76.16
fedprox 76.38
fedrep  74.90
ditto   76.57
fedcog  78.34
"""
TABLE7 = """
fedcog-steps0    60.98
fedcog-steps50   65.40
fedcog           65.44
fedcog-steps500  64.80
fedcog-steps1000 64.92
"""
TABLE8 = """
fedcog 0.72 0.78 0.79 0.80 0.81 0.83 1.27 14.81
"""
TABLE9 = """
fedavg  61.46  64.68  63.45  62.39
fedprox 61.39  63.90  62.13  61.48
moon    61.12  63.59  63.27  62.81
fedcog  61.73  65.61  64.89  64.98
"""
TABLE10 = """
fedavg  18.64  37.44  41.47  46.73
fedprox 20.42  38.36  42.38  47.42
moon    20.84  35.55  41.03  46.57
fedcog  21.36  43.44  48.28  48.37
"""
TABLE11 = """
fedavg  61.00  61.77  57.51  58.03
fedprox 61.28  61.90  57.08  58.98
moon    60.64  60.41  56.25  58.35
fedcog  61.72  61.98  57.67  59.14
"""
